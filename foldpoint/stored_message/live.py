"""The restore gate: a stored message as the kernel holds it while it runs (stored-message.md §4, §6.2)."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from foldpoint.canonical import Json, Unreadable, read_json
from foldpoint.stored_message.content import check_structured
from foldpoint.stored_message.message import Block, Body, StructuredBody, ToolCall, ToolResult
from foldpoint.stored_message.refusals import Incompatible

ROLES = ("system", "user", "assistant", "tool")
#: Text, image, audio or tool result of a live message, tagged by `type`.
Part = dict[str, Any]


class LiveCall(NamedTuple):
    id: str
    name: str
    arguments: Json


class Live(NamedTuple):
    """A message with its content restored: plain text, or parts."""

    role: str
    content: str | list[Part]
    tool_calls: list[LiveCall]

    @property
    def text(self) -> str | None:
        """The plain-text body; None for one in parts."""
        return self.content if isinstance(self.content, str) else None

    @property
    def results(self) -> list[Part]:
        """The tool results it carries."""
        return [] if isinstance(self.content, str) else [part for part in self.content if part["type"] == "tool_result"]

    def to_json(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            message["tool_calls"] = [call._asdict() for call in self.tool_calls]
        return message


def restore_message(role: str, body: Body, tool_calls: Iterable[ToolCall]) -> Live:
    """Raises Incompatible for what the kernel has no live form for."""
    if role not in ROLES:
        raise Incompatible(f"unknown role {role!r}", "role")
    return Live(role, _content(body), [_call(call) for call in tool_calls])


def _call(call: ToolCall) -> LiveCall:
    try:
        arguments = read_json(call["arguments"].encode())
    except Unreadable as error:
        raise Incompatible(f"the arguments of call {call['call_id']!r} are not JSON", "tool_calls") from error
    return LiveCall(call["call_id"], call["name"], arguments)


def _content(body: Body) -> str | list[Part]:
    if body["form"] == "structured":
        return _structured(body)
    text = body["text"] if body["form"] == "inline" else body["preview"]
    if body["tool_call_id"] is None:
        return text
    return [
        {"type": "tool_result", "call_id": body["tool_call_id"], "output": text, "is_error": body["is_error"]},
    ]


def _structured(body: StructuredBody) -> str | list[Part]:
    check_structured(body)
    if "durable_tool_results" in body:
        return [_result(result) for result in body["durable_tool_results"]]
    parts = [_part(block) for block in body["durable_content"]["blocks"]]
    if len(parts) == 1 and parts[0]["type"] == "text":
        text: str = parts[0]["text"]
        return text
    return parts


def _result(result: ToolResult) -> Part:
    return {
        "type": "tool_result",
        "call_id": result["call_id"],
        "output": "".join(block["text"] for block in result["blocks"] if block["type"] == "text"),
        "is_error": result["is_error"],
        "durable_content": {"blocks": result["blocks"]},
    }


def _part(block: Block) -> Part:
    match block:
        case {"type": "text"}:
            return block
        case {"type": "image", "source": {"kind": "url" | "base64"}}:
            options = block.get("provider_options")
            part: Part = {name: block[name] for name in ("type", "source", "media_type") if name in block}
            if isinstance(options, dict) and isinstance(options.get("detail"), str):
                part["detail"] = options["detail"]
            return part
        case {"type": "audio", "source": {"kind": "base64"}, "media_type": _}:
            return {name: block[name] for name in ("type", "source", "media_type")}
    raise Incompatible(f"no live form for {block['type']} from {block['source']['kind']}", "body")
