"""Writing a live message back in the kernel's own spelling (stored-message.md §6)."""

from typing import cast

from foldpoint.canonical import Json, canonical
from foldpoint.stored_message.digest import settled
from foldpoint.stored_message.handles import Handles, cut, preview
from foldpoint.stored_message.live import Live, LiveCall, Part, restore_message
from foldpoint.stored_message.message import Block, Body, Partition, StoredMessage, ToolCall, ToolResult

#: Bytes of an external body that a reference keeps (the kernel's default `preview_bytes`).
_KEPT_BYTES = 2048

_NO_HANDLES = Handles([])


def write_message(live: Live, partition: Partition, tokens: int, handles: Handles = _NO_HANDLES) -> StoredMessage:
    return {
        "partition": partition,
        "role": live.role,
        "body": write_body(live, handles),
        "tool_calls": write_calls(live.tool_calls),
        "tokens": tokens,
    }


def canonical_message(message: StoredMessage) -> StoredMessage:
    """The message in the spelling that survives a checkpoint, as far as none of it is lost (§11).

    Arguments compact with sorted keys, an inline tool result as a structured one, content of text only as inline text.
    References and provider options stay. Raises Incompatible if the message does not restore.
    """
    written = write_message(
        restore_message(message["role"], message["body"], message["tool_calls"]),
        message["partition"],
        message["tokens"],
    )
    if message["body"]["form"] == "reference" or "durable_content" in written["body"]:
        written["body"] = message["body"]
    return written


def settled_message(message: StoredMessage) -> StoredMessage:
    """The message as a kernel without its handles writes it, and reads it back. Raises Incompatible."""
    live = restore_message(message["role"], message["body"], message["tool_calls"])
    calls = [call._replace(arguments=settled(call.arguments)) for call in live.tool_calls]
    written = write_message(live._replace(tool_calls=calls), message["partition"], message["tokens"])
    return cast(StoredMessage, settled(cast(Json, written)))


def write_calls(calls: list[LiveCall]) -> list[ToolCall]:
    return [{"call_id": call.id, "name": call.name, "arguments": arguments_text(call.arguments)} for call in calls]


def arguments_text(arguments: Json) -> str:
    """JSON text, compact and with sorted keys."""
    return canonical(arguments).decode()


def write_body(live: Live, handles: Handles = _NO_HANDLES) -> Body:
    if isinstance(live.content, str):
        return _inline(live.content)
    if results := live.results:
        return _results_body(results, handles)
    if all(part["type"] == "text" for part in live.content):
        return _inline("".join(part["text"] for part in live.content))
    return {"form": "structured", "durable_content": {"blocks": [_block(part) for part in live.content]}}


def _inline(text: str) -> Body:
    return {"form": "inline", "text": text, "tool_call_id": None, "is_error": False}


def _results_body(results: list[Part], handles: Handles) -> Body:
    first = results[0]
    handle = handles.away(first["call_id"])
    if len(results) > 1 or handle is None or "durable_content" in first:
        return {"form": "structured", "durable_tool_results": [_result(part) for part in results]}
    output, call_id = first["output"], first["call_id"]
    paged_out = handle["residency"] == "paged_out"
    return {
        "form": "reference",
        "handle_id": handle["handle_id"],
        "digest": handle["digest"],
        "preview": preview(output, call_id) if paged_out else cut(output, _KEPT_BYTES),
        "tool_call_id": call_id,
        "is_error": first["is_error"],
    }


def _result(part: Part) -> ToolResult:
    content = part.get("durable_content", {"blocks": [{"type": "text", "text": part["output"]}]})
    return {"call_id": part["call_id"], "is_error": part["is_error"], "blocks": content["blocks"]}


def _block(part: Part) -> Block:
    if "detail" not in part:
        return part
    block = {name: value for name, value in part.items() if name != "detail"}
    return {**block, "provider_options": {"detail": part["detail"]}}
