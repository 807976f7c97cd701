"""A ledger as an audit reads it (run-ledger.md §11)."""

from collections.abc import Iterable

from foldpoint.canonical import Json
from foldpoint.run_ledger.errors import IllegalEvent
from foldpoint.run_ledger.state import RunState
from foldpoint.run_ledger.transitions import apply
from foldpoint.run_ledger.wire import Event, RecordedEvent

#: The entry of an event that is shown with all its fields but the run's id.
_WHOLE = {
    "context_compacted": "context_compacted",
    "model_failed": "model_failed",
    "tool_proposals_rejected": "tool_proposals_rejected",
    "tool_call_proposed": "tool_call",
    "tool_finished": "tool_result",
    "approval_granted": "approval_granted",
    "approval_denied": "approval_denied",
    "tool_failed": "tool_failed",
}


def readback(records: Iterable[RecordedEvent]) -> dict[str, Json]:
    """`{"ok": true, "entries", "final_phase", "next_seq"}`, or `{"ok": false, "error"}` with the first error.

    Everything is shown, whatever its visibility.
    """
    state = RunState()
    entries: list[Json] = []
    for record in records:
        try:
            apply(state, record)
        except IllegalEvent as error:
            return {"ok": False, "error": error.to_json()}
        entries.extend(shown(record.event))
    return {"ok": True, "entries": entries, "final_phase": state.phase, "next_seq": state.next_seq}


def shown(event: Event) -> list[dict[str, Json]]:
    """The entries of one folded event."""
    name = event["event"]
    if name in _WHOLE:
        fields = {key: value for key, value in event.items() if key not in ("event", "run_id")}
        return [{"entry": _WHOLE[name], **fields}]
    if name == "context_built":
        return [
            {"entry": "context_fragment", "turn_id": event["turn_id"], "fragment": fragment}
            for fragment in event["context"]["fragments"]
        ]
    if name == "model_responded":
        served, message = event.get("served_model"), event["output"]
        return [{"entry": "model_message", "turn_id": event["turn_id"], "message": message, "served_model": served}]
    if name == "policy_evaluated" and event["decision"]["decision"] == "deny":
        return [{"entry": "policy_denied", "call_id": event["call_id"], "reason": event["decision"]["reason"]}]
    return []
