"""The wire form of a stored message (stored-message.md §2–3)."""

from typing import Any, Literal, NotRequired, TypedDict, cast

from foldpoint.canonical import Json
from foldpoint.stored_message.shapes import (
    Field,
    anything,
    boolean,
    defaulted,
    list_of,
    nullable,
    omittable,
    one_of,
    read_document,
    required,
    string,
    struct,
    tagged,
    u32,
)

Partition = Literal["system", "history"]
#: Text or media of a durable body, tagged by `type`.
Block = dict[str, Any]


class ToolCall(TypedDict):
    """A call an assistant asked for; `arguments` is JSON text."""

    call_id: str
    name: str
    arguments: str


class InlineBody(TypedDict):
    form: Literal["inline"]
    text: str
    tool_call_id: str | None
    is_error: bool


class ReferenceBody(TypedDict):
    """A body that lives with the host; only its preview is here."""

    form: Literal["reference"]
    handle_id: int
    digest: str
    preview: str
    tool_call_id: str | None
    is_error: bool


class DurableContent(TypedDict):
    blocks: list[Block]


class ToolResult(TypedDict):
    call_id: str
    is_error: bool
    blocks: list[Block]


class StructuredBody(TypedDict):
    form: Literal["structured"]
    durable_content: NotRequired[DurableContent]
    durable_tool_results: NotRequired[list[ToolResult]]


Body = InlineBody | ReferenceBody | StructuredBody


class StoredMessage(TypedDict):
    """One message in its normal form; `tokens` is carried, never recounted."""

    partition: Partition
    role: str
    body: Body
    tool_calls: list[ToolCall]
    tokens: int


_SOURCE = tagged(
    "kind",
    {
        "url": {"url": required(string)},
        "base64": {"data": required(string)},
        "file_id": {
            "id": required(string),
            "affinity": required(struct({"provider_id": required(string), "endpoint_id": required(string)})),
        },
        "object": {"handle": required(string), "owner": required(string), "payload_ref": required(string)},
    },
)
_MEDIA: dict[str, Field] = {
    "source": required(_SOURCE),
    "media_type": omittable(nullable(string)),
    "provider_options": omittable(anything),
}
_BLOCK = tagged(
    "type", {"text": {"text": required(string)}, **dict.fromkeys(("image", "audio", "video", "file"), _MEDIA)}
)
_RESULT_OF: dict[str, Field] = {
    "tool_call_id": defaulted(nullable(string), None),
    "is_error": defaulted(boolean, False),
}

BODY = tagged(
    "form",
    {
        "inline": {"text": required(string), **_RESULT_OF},
        "reference": {
            "handle_id": required(u32),
            "digest": required(string),
            "preview": required(string),
            **_RESULT_OF,
        },
        "structured": {
            "durable_content": omittable(nullable(struct({"blocks": required(list_of(_BLOCK))}))),
            "durable_tool_results": omittable(
                list_of(
                    struct(
                        {
                            "call_id": required(string),
                            "is_error": required(boolean),
                            "blocks": required(list_of(_BLOCK)),
                        }
                    )
                ),
                [],
            ),
        },
    },
)
TOOL_CALLS = list_of(struct({"call_id": required(string), "name": required(string), "arguments": required(string)}))
PARTITION = one_of("system", "history")
MESSAGE = struct(
    {
        "partition": required(PARTITION),
        "role": required(string),
        "body": required(BODY),
        "tool_calls": defaulted(TOOL_CALLS, []),
        "tokens": required(u32),
    }
)


def decode_message(value: Json, path: str = "") -> StoredMessage:
    """The decode gate: the message in its normal form. Raises Malformed."""
    return cast(StoredMessage, MESSAGE(value, path))


def read_message(text: bytes) -> StoredMessage:
    """The decode gate for a JSON text, where a key given twice is seen. Raises Malformed."""
    return decode_message(read_document(text))
