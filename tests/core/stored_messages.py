"""Stored messages, and records of ops on a session, as tests need them."""

from typing import Any

from foldpoint.hlc import Hlc
from foldpoint.state import Record
from foldpoint.stored_message.context import context_of
from foldpoint.stored_message.live import Live
from foldpoint.stored_message.message import StoredMessage, decode_message
from tests.fixtures.stored_message_vectors import context_record


def message(role: str, body: Any = "x", tokens: int = 1, calls: tuple[str, ...] = (), **more: Any) -> StoredMessage:
    """A message; `body` is a text, or a body."""
    return decode_message(
        {
            "partition": "history",
            "role": role,
            "body": {"form": "inline", "text": body} if isinstance(body, str) else body,
            "tool_calls": [{"call_id": call, "name": "search", "arguments": "{}"} for call in calls],
            "tokens": tokens,
            **more,
        }
    )


def result(*calls: str, tokens: int = 1) -> StoredMessage:
    results = [{"call_id": call, "is_error": False, "blocks": [{"type": "text", "text": call}]} for call in calls]
    return message("tool", {"form": "structured", "durable_tool_results": results}, tokens)


def put(at: int, message_id: str, **more: Any) -> Record:
    return op(at, {"op": "put", "message_id": message_id, "pos": 0, "message": message("user", "text"), **more})


def op(at: int, body: dict[str, Any]) -> Record:
    return context_record(Hlc(at, 0, "phone"), f"op-{at}", {"session": "s", **body})


def turn(role: str, content: Any = "x", calls: tuple[str, ...] = ()) -> Live:
    spoken = context_of([message(role, content, calls=calls)] if isinstance(content, str) else [content])
    return spoken.history[0].live


def with_options(options: Any) -> StoredMessage:
    """A result with a file that carries these provider options."""
    block = {"type": "file", "source": {"kind": "url", "url": "u"}, "provider_options": options}
    results = [{"call_id": "c", "is_error": False, "blocks": [block]}]
    return message("tool", {"form": "structured", "durable_tool_results": results})
