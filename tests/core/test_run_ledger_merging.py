"""Corners of the state machine and of the merge that the vectors leave out (run-ledger.md §6, §12)."""

import pytest

from foldpoint.canonical import Json
from foldpoint.hlc import U32_MAX
from foldpoint.run_ledger.errors import ContextBudgetExceeded, UnproposedToolCall
from foldpoint.run_ledger.merge import merge
from foldpoint.run_ledger.transitions import refusal
from foldpoint.run_ledger.wire import RecordedEvent
from tests.core.run_ledger_records import RUN, STARTS, context, event, id_of, recorded, replayed

START = RecordedEvent(0, 0, STARTS[0])


def test_a_context_far_over_its_budget_is_told_in_u32() -> None:
    pack = context(1, 1, budget=U32_MAX)
    for fragment in pack["fragments"]:
        fragment["estimated_tokens"] = U32_MAX
    error = refusal(replayed([START]), RecordedEvent(1, 0, event("context_built", turn_id="t", context=pack)))
    assert isinstance(error, ContextBudgetExceeded)
    assert error.fields == {"used": U32_MAX, "budget": U32_MAX}


@pytest.mark.parametrize(
    ("proposed", "called", "legal"),
    [(1, 1, True), (1, 1.0, False), (1, True, False), (0.0, -0.0, True), ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True)],
)
def test_a_call_takes_the_input_that_was_proposed(proposed: Json, called: Json, legal: bool) -> None:
    proposals = [{"tool": "x", "input": proposed}]
    output = {"role": "assistant", "content": ""}
    events = [
        event("context_built", turn_id="t", context=context()),
        event("model_requested", turn_id="t", step=0, model="m"),
        event("model_responded", turn_id="t", step=0, output=output, proposed_calls=proposals, usage=None),
    ]
    state = replayed([START, *(RecordedEvent(seq, 0, told) for seq, told in enumerate(events, 1))])
    call = {"id": "c", "tool": "x", "effect": "network", "input": called}
    error = refusal(state, RecordedEvent(4, 0, event("tool_call_proposed", turn_id="t", call=call)))
    assert error is None if legal else isinstance(error, UnproposedToolCall)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_a_record_written_again_stands_at_its_later_stamp(order: tuple[int, ...]) -> None:
    records = [recorded(1, 0, STARTS[0]), recorded(2, 0, STARTS[1]), recorded(3, 0, STARTS[0])]
    merged = merge(RUN, [records[n] for n in order])
    assert [entry.place.id for entry in merged.folded] == [id_of(records[1])]
    assert len(merged.standings) == 2
    snapshot, _ = merge(RUN, records[:2]).settle()
    assert merge(RUN, records[2:], snapshot).folded == merged.folded
