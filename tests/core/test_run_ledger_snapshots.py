"""Snapshots: what they hold, and what they cannot answer (run-ledger.md §12)."""

import pytest

from foldpoint.canonical import canonical, read_json
from foldpoint.hlc import Hlc
from foldpoint.projection import BelowSnapshot
from foldpoint.run_ledger.answers import append_answer, conflicts, run_answer
from foldpoint.run_ledger.merge import WINDOW, merge
from foldpoint.run_ledger.snapshot import Snapshot, read_snapshot
from tests.core.run_ledger_records import (
    DEVICE,
    RUN,
    STARTS,
    called_turn,
    context,
    event,
    id_of,
    recorded,
    sealed,
    written,
)


def test_a_snapshot_does_not_grow_with_the_ledger() -> None:
    few, many = (merge(RUN, written(turns)).settle()[0] for turns in (50, 500))
    assert len(few.open) == len(many.open) == WINDOW
    assert many.base.next_seq == 3 * 500 + 1 - WINDOW


def test_seals_do_not_make_it_grow_either() -> None:
    records = written(200)
    seals = [sealed(seq, seq, id_of(records[seq]), epoch=3) for seq in range(len(records) - 5)]
    merged = merge(RUN, [*records, *seals])
    snapshot, settled = merged.settle()
    assert len(snapshot.open) == 2 * WINDOW - 5
    assert snapshot.sealed == snapshot.base.next_seq
    assert len(settled) == 2 * snapshot.base.next_seq
    again = merge(RUN, [recorded(5_000, len(records), event("run_finished"))], snapshot)
    assert (again.sealed, again.epoch) == (len(records) - 5, 3)


def test_a_snapshot_does_not_part_a_seal() -> None:
    records = written(100)
    whole = sealed(500, 290, *map(id_of, records[:291]))
    assert merge(RUN, [*records, whole]).settle()[0].base.next_seq == 0
    rest = sealed(500, 290, *map(id_of, records[200:291]))
    assert merge(RUN, [*records, rest]).settle()[0].base.next_seq == 200


def test_seals_that_overlap_are_kept_together() -> None:
    records = written(100)
    ids = [id_of(record) for record in records]
    overlapping = [sealed(500, 290, *ids[210:291]), sealed(501, 215, *ids[205:216]), sealed(502, 100, ids[100])]
    assert merge(RUN, [*records, *overlapping]).settle()[0].base.next_seq == 205


def test_a_snapshot_is_at_the_last_stamp() -> None:
    snapshot, _ = merge(RUN, reversed(written(1))).settle()
    assert snapshot.through == (Hlc(3, 0, DEVICE), "op-3")
    assert merge(RUN, [], snapshot).settle()[0].through == snapshot.through


def test_a_snapshot_survives_its_text() -> None:
    snapshot, _ = merge(RUN, [*written(3), sealed(50, 1, "unknown", "other")]).settle(2)
    text = canonical(snapshot.to_json())
    assert canonical(read_snapshot(read_json(text)).to_json()) == text
    assert read_snapshot(read_json(text)) == snapshot
    assert read_snapshot(read_json(canonical(Snapshot().to_json()))) == Snapshot()


def test_reused_ids_are_refused_after_a_snapshot() -> None:
    snapshot, _ = merge(RUN, written(30)).settle(1)
    late = recorded(500, 91, event("context_built", turn_id="t0", context=context()))
    merged = merge(RUN, [late], snapshot)
    error = merged.standings[-1].status.error
    assert error is not None
    assert error.fields == {"turn_id": "t0"}


def test_what_lies_below_a_snapshot_needs_the_whole() -> None:
    records = written(30)
    snapshot, _ = merge(RUN, records).settle(10)
    start = snapshot.base.next_seq
    for record in (recorded(90, 91, STARTS[0]), sealed(500, start + 1, *map(id_of, records[start - 1 : start + 2]))):
        with pytest.raises(BelowSnapshot):
            merge(RUN, [record], snapshot)
    assert merge(RUN, [recorded(500, start, STARTS[0])], snapshot).standings[1].status.status == "illegal"


def test_an_entry_of_a_settled_seq_has_lost_there() -> None:
    records = written(30)
    snapshot, _ = merge(RUN, records).settle(10)
    late = recorded(500, snapshot.base.next_seq - 1, STARTS[0])
    merged = merge(RUN, [late], snapshot)
    assert merged.state.checkpoint() == merge(RUN, [*records, late]).state.checkpoint()
    assert merged.through == (Hlc(500, 0, DEVICE), "op-500")
    with pytest.raises(BelowSnapshot):
        append_answer(merged, [id_of(late)])


def test_merging_onto_a_snapshot_and_settling_leave_it_as_it_was() -> None:
    snapshot, _ = merge(RUN, written(3)).settle(1)
    before = canonical(snapshot.to_json())
    later = [recorded(500 + seq, seq, told) for seq, told in enumerate(called_turn("t3", 3), 10)]
    merged = merge(RUN, later, snapshot)
    assert merged.state.next_seq == 14
    merged.settle(0)
    assert canonical(snapshot.to_json()) == before


def test_the_state_knows_who_runs_it() -> None:
    assert merge(RUN, written(1)).state.agent_id == "ada"
    assert read_snapshot(merge(RUN, written(30)).settle()[0].to_json()).base.agent_id == "ada"


def test_an_append_is_told_of_its_own_records() -> None:
    records = written(1)
    rival = recorded(9, 1, event("context_built", turn_id="tB", context=context(1)))
    merged = merge(RUN, [*records, rival])
    assert append_answer(merged, [id_of(rival), id_of(records[0])]) == {
        "statuses": [
            {"id": id_of(rival), "seq": 1, "status": "superseded", "winner": id_of(records[1])},
            {"id": id_of(records[0]), "seq": 0, "status": "folded"},
        ],
        "next_seq": 4,
        "command": None,
    }
    with pytest.raises(BelowSnapshot):
        append_answer(merge(RUN, [], merged.settle(1)[0]), [id_of(records[0])])


def test_conflicts_name_op_device_and_winner_or_error() -> None:
    records = written(1)
    rival = recorded(9, 1, event("context_built", turn_id="tB", context=context(1)))
    duplicate = recorded(8, 0, STARTS[0], at=5)
    wrong = recorded(10, 1, event("run_finished"))
    seals = [sealed(11, 0, id_of(records[0])), sealed(12, 0, "other", epoch=2)]
    over = [recorded(20, 4, event("run_finished")), recorded(21, 5, event("run_finished"))]
    found = conflicts(merge(RUN, [*records, rival, duplicate, wrong, *seals, *over]).standings)
    assert [(told["op_id"], told["device_id"], told["seq"], told["status"]) for told in found] == [
        ("op-9", DEVICE, 1, "superseded"),
        ("op-10", DEVICE, 1, "illegal"),
        ("op-21", DEVICE, 5, "after_terminal"),
        ("seal-12", DEVICE, 0, "illegal"),
    ]
    superseded, illegal, _, seal = found
    assert (superseded["winner"], superseded["record"]) == (id_of(records[1]), rival.value()["record"])
    assert illegal["error"] == {
        "variant": "InvalidTransition",
        "fields": {"phase": "ready_for_context", "event": "run_finished"},
        "message": "run_finished is not possible in ready_for_context",
    }
    assert seal["seal"] == {"through_seq": 0, "winners": ["other"], "epoch": 2}


def test_a_run_that_nobody_recorded_is_empty() -> None:
    assert run_answer(merge(RUN, [])) == {
        "state": {"run_id": None, "next_seq": 0, "phase": {"phase": "not_started"}, "pending_compaction_turn": None},
        "command": None,
        "statuses": {},
        "blocked_at": None,
    }
