"""What an executor may do, and what it does when it takes over (run-ledger.md §12)."""

from typing import Any

import pytest

from foldpoint.canonical import Json
from foldpoint.lease import Lease
from foldpoint.projection import BelowSnapshot
from foldpoint.run_ledger.errors import SealMismatch
from foldpoint.run_ledger.executor import NotFolded, check_append, check_seal, plan_seal, recovery, seen_at
from foldpoint.run_ledger.merge import merge
from foldpoint.run_ledger.state import RunState
from foldpoint.run_ledger.transitions import apply
from foldpoint.run_ledger.wire import RecordedEvent
from tests.core.run_ledger_records import RUN, STARTS, called_turn, event, id_of, replayed, sealed, written

HELD = Lease("ada", "worker", 5, 0)
PROCEED: Json = {"decision": "proceed"}


def stale(claimed: int, current: int, holder: str | None) -> Json:
    return {
        "decision": "stale_epoch",
        "claimed_epoch": claimed,
        "current_epoch": current,
        "current_holder": holder,
    }


@pytest.mark.parametrize(
    ("lease", "floor", "writer", "claimed", "decision"),
    [
        (HELD, 0, "worker", 5, PROCEED),
        (HELD, 5, "worker", 5, PROCEED),
        (HELD, 0, "worker", 4, stale(4, 5, "worker")),
        (HELD, 0, "worker", 6, stale(6, 5, "worker")),
        (HELD, 0, "other", 5, stale(5, 5, "worker")),
        (HELD, 6, "worker", 5, stale(5, 6, None)),
        (HELD, 6, "worker", 6, stale(6, 6, None)),
        (None, 5, "worker", 4, stale(4, 5, None)),
        (None, 5, "worker", 5, PROCEED),
        (None, 0, "worker", 0, PROCEED),
    ],
)
def test_a_stale_epoch_appends_nothing(
    lease: Lease | None, floor: int, writer: str, claimed: int, decision: Json
) -> None:
    assert check_append(lease, floor, writer, claimed) == decision


def test_only_the_holder_seals() -> None:
    assert check_seal(HELD, 0, "worker", 5) == PROCEED
    assert check_seal(HELD, 6, "worker", 5) == stale(5, 6, None)
    assert check_seal(None, 6, "worker", 5) == stale(5, 6, None)
    assert check_seal(None, 5, "worker", 5) == {"decision": "not_held", "claimed_epoch": 5}


def test_a_seal_holds_what_no_seal_holds_yet() -> None:
    records = written(2)
    ids = [id_of(record) for record in records]
    assert plan_seal(merge(RUN, records), 3, seen_at(3, ids[:4])) == tuple(ids[:4])
    assert plan_seal(merge(RUN, records), 3, seen_at(3, ids[2:4])) == tuple(ids[:4])
    merged = merge(RUN, [*records, sealed(50, 1, *ids[:2])])
    assert plan_seal(merged, 3, seen_at(3, ids[:4])) == tuple(ids[2:4])
    assert plan_seal(merged, 1, seen_at(1, ids[:2])) == ()
    assert plan_seal(merged, 0, seen_at(0, ids[:1])) == ()


def test_a_seal_needs_the_winners_that_the_executor_saw() -> None:
    records = written(2)
    ids = [id_of(record) for record in records]
    merged = merge(RUN, records)
    with pytest.raises(SealMismatch) as refused:
        plan_seal(merged, 3, seen_at(3, [ids[0], "other", *ids[2:4]]))
    assert refused.value.fields == {"seq": 1, "expected": ids[1], "actual": "other"}
    with pytest.raises(NotFolded):
        plan_seal(merged, len(ids), seen_at(len(ids), [*ids, "next"]))


def test_a_seal_below_a_snapshot_needs_the_whole() -> None:
    records = written(10)
    ids = [id_of(record) for record in records]
    snapshot, _ = merge(RUN, records).settle(5)
    with pytest.raises(BelowSnapshot):
        plan_seal(merge(RUN, [], snapshot), 30, seen_at(30, ids[28:31]))
    snapshot, _ = merge(RUN, [*records, sealed(500, 27, *ids[:28])]).settle(3)
    assert snapshot.base.next_seq == 28
    assert plan_seal(merge(RUN, [], snapshot), 30, seen_at(30, ids[28:31])) == tuple(ids[28:31])
    with pytest.raises(BelowSnapshot):
        plan_seal(merge(RUN, [], snapshot), 30, seen_at(30, ids[27:31]))


def running(*events: Any) -> RunState:
    return replayed([RecordedEvent(seq, 0, told) for seq, told in enumerate([STARTS[0], *events])])


CALLED = [*called_turn("t1", 0), event("policy_evaluated", call_id="c1", decision={"decision": "allow"})]
REQUESTED = CALLED[:2]


@pytest.mark.parametrize(
    ("events", "phase"),
    [(REQUESTED, "ready_to_request_model"), ([*CALLED, event("tool_started", call_id="c1")], "tool_failed")],
)
def test_recovery_closes_what_was_left_running(events: list[Any], phase: str) -> None:
    state = running(*events)
    closing = recovery(state, "taken over")
    assert closing is not None
    assert closing["reason"] == "taken over"
    apply(state, RecordedEvent(state.next_seq, 0, closing))
    assert state.phase["phase"] == phase


@pytest.mark.parametrize("events", [[], REQUESTED[:1], CALLED, [event("run_failed", reason="x")]])
def test_recovery_has_nothing_to_close_elsewhere(events: list[Any]) -> None:
    assert recovery(running(*events), "taken over") is None
