"""Which event is legal where, and what it changes (run-ledger.md §6, §8)."""

from collections.abc import Callable

from foldpoint.hlc import U32_MAX
from foldpoint.run_ledger.equality import same_json
from foldpoint.run_ledger.errors import (
    ContextBudgetExceeded,
    EmptyToolProposalsRejectionReason,
    IllegalEvent,
    InvalidCompactionRange,
    InvalidTransition,
    RunIdMismatch,
    SequenceMismatch,
    StepMismatch,
    ToolCallMismatch,
    ToolCallReused,
    TurnMismatch,
    TurnReused,
    UnproposedToolCall,
)
from foldpoint.run_ledger.reading import is_blank
from foldpoint.run_ledger.state import Phase, RunState, Step
from foldpoint.run_ledger.wire import Event, RecordedEvent


def apply(state: RunState, record: RecordedEvent) -> None:
    """Take one record, or raise IllegalEvent and change nothing."""
    state.take(record, decide(state, record))


def decide(state: RunState, record: RecordedEvent) -> Step:
    """What a record changes if it is taken in this state. Raises IllegalEvent, by the checks' order of §6."""
    if record.seq != state.next_seq:
        raise SequenceMismatch(expected=state.next_seq, actual=record.seq)
    if state.run_id is not None and record.run_id != state.run_id:
        raise RunIdMismatch(expected=state.run_id, actual=record.run_id)
    _check_gate(state, record)
    row = _TABLE.get((state.phase["phase"], record.name))
    if row is None:
        raise _not_here(state, record)
    return row(state, record.event)


def refusal(state: RunState, record: RecordedEvent) -> IllegalEvent | None:
    """Why a record is not legal in this state."""
    try:
        decide(state, record)
    except IllegalEvent as error:
        return error
    return None


def _check_gate(state: RunState, record: RecordedEvent) -> None:
    """After a compaction only its own context, or the run's failure, may follow (§8)."""
    gate = state.pending_compaction_turn
    if gate is None or record.name == "run_failed":
        return
    if record.name != "context_built":
        raise _not_here(state, record)
    _same_turn(gate, record.event)


def _not_here(state: RunState, record: RecordedEvent) -> InvalidTransition:
    return InvalidTransition(phase=state.phase["phase"], event=record.name)


def _same_turn(expected: str, event: Event) -> None:
    if event["turn_id"] != expected:
        raise TurnMismatch(expected=expected, actual=event["turn_id"])


def _same_step(phase: Phase, event: Event) -> None:
    _same_turn(phase["turn_id"], event)
    if event["step"] != phase["step"]:
        raise StepMismatch(expected=phase["step"], actual=event["step"])


def _same_call(expected: str, actual: str) -> None:
    if actual != expected:
        raise ToolCallMismatch(expected=expected, actual=actual)


def _new_turn(state: RunState, event: Event) -> None:
    if event["turn_id"] in state.used_turns:
        raise TurnReused(turn_id=event["turn_id"])


def _started(_state: RunState, _event: Event) -> Step:
    return Step({"phase": "ready_for_context"})


def _built(state: RunState, event: Event) -> Step:
    _new_turn(state, event)
    turn, context = event["turn_id"], event["context"]
    used = sum(fragment["estimated_tokens"] for fragment in context["fragments"])
    if used > context["token_budget"]:
        raise ContextBudgetExceeded(used=min(used, U32_MAX), budget=context["token_budget"])
    phase = {
        "phase": "ready_to_request_model",
        "turn_id": turn,
        "step": state.next_model_step,
        "context": context,
    }
    return Step(phase, turn=turn)


def _compacted(state: RunState, event: Event) -> Step:
    start, end = event["dropped_turn_start"], event["dropped_turn_end_exclusive"]
    if start >= end:
        raise InvalidCompactionRange(start=start, end_exclusive=end)
    _new_turn(state, event)
    return Step(state.phase, gate=event["turn_id"])


def _requested(state: RunState, event: Event) -> Step:
    _same_step(state.phase, event)
    return Step({**state.phase, "phase": "awaiting_model_response"})


def _model_failed(state: RunState, event: Event) -> Step:
    _same_step(state.phase, event)
    return Step({**state.phase, "phase": "ready_to_request_model"})


def _responded(state: RunState, event: Event) -> Step:
    _same_step(state.phase, event)
    if not event["proposed_calls"]:
        return Step({"phase": "turn_concluded"}, responded=True)
    phase = {"phase": "awaiting_tool_call", "turn_id": event["turn_id"], "proposals": event["proposed_calls"]}
    return Step(phase, responded=True)


def _rejected(state: RunState, event: Event) -> Step:
    _same_turn(state.phase["turn_id"], event)
    if is_blank(event["reason"]):
        raise EmptyToolProposalsRejectionReason
    return Step({"phase": "turn_concluded"})


def _proposed(state: RunState, event: Event) -> Step:
    """One call per turn: the other proposals are gone with it."""
    _same_turn(state.phase["turn_id"], event)
    call = event["call"]
    if not any(
        proposal["tool"] == call["tool"] and same_json(proposal["input"], call["input"])
        for proposal in state.phase["proposals"]
    ):
        raise UnproposedToolCall
    if call["id"] in state.used_calls:
        raise ToolCallReused(call_id=call["id"])
    return Step({"phase": "awaiting_policy", "call": call}, call=call["id"])


def _evaluated(state: RunState, event: Event) -> Step:
    call, decision = state.phase["call"], event["decision"]
    _same_call(call["id"], event["call_id"])
    if decision["decision"] == "allow":
        return Step({"phase": "ready_to_execute_tool", "call": call})
    if decision["decision"] == "require_approval":
        return Step({"phase": "awaiting_approval", "call": call, "reason": decision["reason"]})
    return Step({"phase": "policy_denied", "call_id": call["id"], "reason": decision["reason"]})


def _granted(state: RunState, event: Event) -> Step:
    call = state.phase["call"]
    _same_call(call["id"], event["call_id"])
    return Step({"phase": "ready_to_execute_tool", "call": call})


def _denied(state: RunState, event: Event) -> Step:
    _same_call(state.phase["call"]["id"], event["call_id"])
    return Step({"phase": "approval_denied", "call_id": event["call_id"], "reason": event["reason"]})


def _tool_started(state: RunState, event: Event) -> Step:
    _same_call(state.phase["call"]["id"], event["call_id"])
    return Step({"phase": "tool_running", "call_id": event["call_id"]})


def _tool_finished(state: RunState, event: Event) -> Step:
    _same_call(state.phase["call_id"], event["result"]["call_id"])
    return Step({"phase": "turn_concluded"})


def _tool_failed(state: RunState, event: Event) -> Step:
    _same_call(state.phase["call_id"], event["call_id"])
    return Step({"phase": "tool_failed", "call_id": event["call_id"], "reason": event["reason"]})


def _finished(_state: RunState, _event: Event) -> Step:
    return Step({"phase": "finished"})


def _failed(_state: RunState, event: Event) -> Step:
    return Step({"phase": "failed", "reason": event["reason"]})


_Row = Callable[[RunState, Event], Step]

#: Phases in which a new turn may begin.
_OPEN = ("ready_for_context", "turn_concluded", "policy_denied", "approval_denied", "tool_failed")

_ROWS: dict[tuple[str, str], _Row] = {
    ("not_started", "run_started"): _started,
    **{(phase, "context_built"): _built for phase in _OPEN},
    **{(phase, "context_compacted"): _compacted for phase in _OPEN},
    ("ready_to_request_model", "model_requested"): _requested,
    ("awaiting_model_response", "model_failed"): _model_failed,
    ("awaiting_model_response", "model_responded"): _responded,
    ("awaiting_tool_call", "tool_call_proposed"): _proposed,
    ("awaiting_tool_call", "tool_proposals_rejected"): _rejected,
    ("awaiting_policy", "policy_evaluated"): _evaluated,
    ("awaiting_approval", "approval_granted"): _granted,
    ("awaiting_approval", "approval_denied"): _denied,
    ("ready_to_execute_tool", "tool_started"): _tool_started,
    ("tool_running", "tool_finished"): _tool_finished,
    ("tool_running", "tool_failed"): _tool_failed,
    ("turn_concluded", "run_finished"): _finished,
}
#: All phases but the terminal ones have a row.
_STARTED = {phase for phase, _ in _ROWS} - {"not_started"}
_TABLE: dict[tuple[str, str], _Row] = {**_ROWS, **{(phase, "run_failed"): _failed for phase in _STARTED}}
