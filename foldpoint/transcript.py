"""What was said in a conversation (car-sync.md §7.1–7.4)."""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from foldpoint.canonical import Json, clamp_u64
from foldpoint.state import Record, SyncState
from foldpoint.surfaces import conversation


class Turn(Struct, frozen=True, gc=False):
    """One record of a conversation, projected. `timestamp` is display only and orders nothing."""

    conversation_id: str
    role: str
    content: str
    tool_calls: list[dict[str, Json]]
    tool_use_id: str | None
    external: bool
    ok: bool | None
    timestamp: int
    record: Record

    def to_json(self) -> dict[str, Any]:
        turn: dict[str, Any] = {
            "conversation_id": self.conversation_id,
            "role": self.role,
            "content": self.content,
        }
        if self.tool_calls:
            turn["tool_calls"] = self.tool_calls
        if self.tool_use_id is not None:
            turn["tool_use_id"] = self.tool_use_id
        if self.external:
            turn["provenance"] = "external"
        if self.ok is not None:
            turn["ok"] = self.ok
        return {**turn, "timestamp": self.timestamp, "hlc": self.record.hlc.to_json(), "op_id": self.record.op_id}


def turn_of(record: Record) -> Turn | None:
    """The turn of a conversation record; None for a tombstone, else nothing can fail."""
    payload = record.value()
    if conversation.is_tombstone(payload):
        return None
    fields: dict[str, Any] = payload if isinstance(payload, dict) else {}
    get = fields.get
    calls, use_id, ok = get("tool_calls"), get("tool_use_id"), get("ok")
    return Turn(
        conversation.conversation_id(payload),
        conversation.role(fields),
        conversation.content(fields),
        [call for value in calls if (call := _tool_call(value))] if calls and isinstance(calls, list) else [],
        use_id if isinstance(use_id, str) else None,
        get("provenance") == "external",
        ok if isinstance(ok, bool) else None,
        clamp_u64(get("timestamp")) or 0,
        record,
    )


def _tool_call(value: Json) -> dict[str, Json] | None:
    """A ToolCall with its known fields, or None if it does not parse (§7.2)."""
    if isinstance(value, list) and len(value) == 3:
        value = dict(zip(("id", "name", "arguments"), value, strict=True))
    if not isinstance(value, dict):
        return None
    name, arguments, call_id = value.get("name"), value.get("arguments"), value.get("id")
    if not isinstance(name, str) or not isinstance(arguments, dict) or not isinstance(call_id, str | None):
        return None
    call: dict[str, Json] = {} if call_id is None else {"id": call_id}
    return {**call, "name": name, "arguments": arguments}


def turns(records: Iterable[Record]) -> list[Turn]:
    """The turns of records that are already in (hlc, op_id) order."""
    return [turn for record in records if (turn := turn_of(record))]


def transcript(state: SyncState, conversation_id: str) -> list[Turn]:
    """All turns of one conversation in (hlc, op_id) order."""
    entries = state.log_entries(conversation.SURFACE.name)
    return [turn for turn in turns(entries) if turn.conversation_id == conversation_id]


def conversation_ids(state: SyncState) -> list[str]:
    """The conversations with at least one turn, in byte order; the default one is the empty string."""
    return sorted({turn.conversation_id for turn in turns(state.log_entries(conversation.SURFACE.name))})
