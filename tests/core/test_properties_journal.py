"""The fold on several devices is a pure function of the set of ops, by the rules of journal.md §8."""

from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from foldpoint.canonical import Json
from foldpoint.journal.files import export_records, export_state
from foldpoint.journal.fold import fold_file, fold_journal, fold_onto
from foldpoint.journal.records import Entry, read_record
from foldpoint.journal.snapshot import Snapshot, read_snapshot, write_snapshot
from foldpoint.journal.state import JournalState
from foldpoint.journal.view import JUDGED, VIEWED
from foldpoint.projection import BelowSnapshot
from foldpoint.state import Record
from tests.core.journal_histories import Step, long_history, steps, written
from tests.core.journal_model import Model, described, is_visible
from tests.fixtures.journal_vectors import records_of
from tests.fixtures.ops import THOROUGH, arrivals
from tests.fixtures.vectors import text

OFTEN = settings(THOROUGH, max_examples=500)
MANY = settings(THOROUGH, max_examples=1_500)


def entries(records: list[Record]) -> tuple[Entry, ...]:
    return tuple(entry for record in records if (entry := read_record(record)))


def same(one: JournalState, other: JournalState) -> None:
    assert write_snapshot(Snapshot(one)) == write_snapshot(Snapshot(other))


def stored(snapshot: Snapshot) -> Snapshot:
    return read_snapshot(write_snapshot(snapshot))


def snapshot_of(records: list[Record]) -> Snapshot:
    return stored(fold_onto(Snapshot(), records, recent=0).snapshot)


@MANY
@given(steps(), st.booleans())
def test_it_folds_by_the_rules(history: list[Step], honest: bool) -> None:
    records = records_of(written(history, honest=honest))
    state, model = fold_journal(records), Model(entries(records))
    assert described(state) == model.described()
    places = [*state.view.messages, *(message for frame in state.view.undo_stack for message in frame.messages)]
    said = [entry.id for entry in entries(records) if entry.op["op"] == "message"]
    assert Counter(message.id for message in places) == Counter(said)
    assert (state.records, state.skipped) == (len(entries(records)), len(records) - len(entries(records)))


@THOROUGH
@given(steps(), st.data())
def test_arrival_and_repetition_do_not_matter(history: list[Step], data: st.DataObject) -> None:
    ops = written(history)
    same(fold_journal(records_of(data.draw(arrivals(ops)))), fold_journal(records_of(ops)))


@OFTEN
@given(steps(), st.integers(0, 16))
def test_snapshot_and_tail_are_the_whole_or_nothing(history: list[Step], cut: int) -> None:
    records = records_of(written(history))
    below, tail = records[:cut], records[cut:]
    snapshot = snapshot_of(below)
    before = write_snapshot(snapshot)
    if reaches_below(entries(below), entries(tail)):
        with pytest.raises(BelowSnapshot):
            fold_onto(snapshot, tail)
    else:
        same(fold_onto(snapshot, tail).state, fold_journal(records))
    same(snapshot.state, fold_journal(below))
    assert write_snapshot(snapshot) == before


#: A device hears of another whose only entry below is one that no view is made of.
CHECKPOINT_ONLY = [
    Step(writer=1, op=0, hears=0, wall_now=0, how=0, wild=(0, 0, 0)),
    Step(writer=0, op=22, hears=2, wall_now=11, how=2, wild=(6, 1, 0)),
    Step(writer=2, op=4, hears=0, wall_now=0, how=0, wild=(0, 0, 0)),
    Step(writer=0, op=0, hears=0, wall_now=0, how=0, wild=(0, 0, 0)),
    Step(writer=2, op=7, hears=3, wall_now=2, how=0, wild=(0, 0, 0)),
    Step(writer=2, op=19, hears=1, wall_now=1, how=0, wild=(0, 0, 0)),
]


@OFTEN
@given(steps(), st.booleans(), st.integers(0, 8), st.integers(0, 8))
@example(history=CHECKPOINT_ONLY, honest=True, recent=3, new=1)
def test_a_snapshot_remembers_what_recent_records_mean(
    history: list[Step], honest: bool, recent: int, new: int
) -> None:
    records = records_of(written(history, honest=honest))
    known = records[: len(records) - new]
    cut = max(0, len(known) - recent)
    snapshot = stored(fold_onto(Snapshot(), known, recent).snapshot)
    below, unknown = entries(records[:cut]), entries(records[len(known) :])
    try:
        folded = fold_onto(snapshot, records[cut:], recent)
    except BelowSnapshot:
        assert not honest or reaches_below(below, unknown)
        return
    assert not reaches_below(below, unknown)
    same(folded.state, fold_journal(records))
    assert write_snapshot(folded.snapshot) == write_snapshot(fold_onto(Snapshot(), records, recent).snapshot)


@OFTEN
@given(steps(), st.integers(0, 8), st.data())
def test_what_comes_late_above_a_snapshot_is_folded_in(history: list[Step], recent: int, data: st.DataObject) -> None:
    records = records_of(written(history, honest=True))
    cut = max(0, len(records) - recent)
    if cut == len(records):
        return
    late = data.draw(st.sampled_from(records[cut:]))
    device = late.hlc.device_id
    known = [record for record in records if record < late or record.hlc.device_id != device]
    snapshot = stored(fold_onto(Snapshot(), known, len(known) - cut).snapshot)
    try:
        folded = fold_onto(snapshot, records[cut:])
    except BelowSnapshot:
        assert reaches_below(entries(records[:cut]), entries(records[cut:]))
        return
    same(folded.state, fold_journal(records))


def reaches_below(below: tuple[Entry, ...], tail: tuple[Entry, ...]) -> bool:
    """Whether an op of the tail counts in a view without the last of some other device below."""
    last = {entry.hlc.device_id: entry for entry in below if entry.op["op"] in VIEWED}
    judged = [entry for entry in tail if entry.op["op"] in JUDGED]
    return any(not is_visible(other, entry) for entry in judged for other in last.values())


@THOROUGH
@given(steps(), st.data())
def test_what_sorts_below_a_snapshot_is_refused(history: list[Step], data: st.DataObject) -> None:
    records = records_of(written(history))
    if records:
        late = data.draw(st.sampled_from(records))
        with pytest.raises(BelowSnapshot):
            fold_onto(snapshot_of(records), [late])


@THOROUGH
@given(steps(devices=1))
def test_one_device_needs_only_the_rules_for_one(history: list[Step]) -> None:
    records = records_of(written(history))
    alone, file = fold_journal(records).to_json(), fold_file(b"".join(export_records(records))).to_json()
    named: dict[str, Json] = {"last_checkpoints": {}, "upgraded_by": []}
    assert text(alone | named) == text(file | named)


@THOROUGH
@given(steps())
def test_an_exported_state_reads_as_what_several_devices_made(history: list[Step]) -> None:
    state = fold_journal(records_of(written(history)))
    file = fold_file(b"".join(export_state(state)))
    for name in ("messages", "undo_stack", "steer_queue", "follow_up_queue", "checkpoint_messages", "renames"):
        assert text(file.to_json()[name]) == text(state.to_json()[name]), name
    unpersisted = [message.id for message in state.unpersisted()]
    length = len(file.unpersisted())
    messages = [message.id for message in state.view.messages]
    assert messages[len(messages) - length :] == unpersisted[len(unpersisted) - length :]


@pytest.mark.parametrize(("seed", "honest"), [(1, True), (2, False)])
def test_long_histories_fold_by_the_rules(seed: int, honest: bool) -> None:
    records = records_of(written(long_history(300, seed), honest=honest))
    assert described(fold_journal(records)) == Model(entries(records)).described()


def test_a_long_history_is_read_on_from_snapshot_to_snapshot() -> None:
    """Read after every ten records, as a server does that stores a snapshot when many records are new."""
    records = records_of(written(long_history(400, 3), honest=True))
    snapshot, start, refolded = Snapshot(), 0, 0
    for end in range(10, len(records) + 1, 10):
        try:
            state, later = fold_onto(snapshot, records[start:end], recent=64)
        except BelowSnapshot:
            refolded += 1
            state, later = fold_onto(Snapshot(), records[:end], recent=64)
        same(state, fold_journal(records[:end]))
        if end - start > 128:
            snapshot, start = stored(later), end - 64
    assert start > 250
    assert refolded <= 2
