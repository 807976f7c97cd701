"""A merge is a pure function of the set of records, and nothing sealed changes (run-ledger.md §12, server.md §8)."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from foldpoint.canonical import Json, canonical, read_json
from foldpoint.hlc import Hlc
from foldpoint.projection import BelowSnapshot, author_of
from foldpoint.run_ledger.answers import run_answer
from foldpoint.run_ledger.entry import entry_payload, seal_payload
from foldpoint.run_ledger.executor import plan_seal, seen_at
from foldpoint.run_ledger.lines import export_lines, import_lines
from foldpoint.run_ledger.merge import Merged, merge
from foldpoint.run_ledger.readback import readback
from foldpoint.run_ledger.snapshot import Snapshot, read_snapshot
from foldpoint.run_ledger.walk import Standing
from foldpoint.run_ledger.wire import RecordedEvent
from foldpoint.state import Record
from tests.core.run_ledger_histories import histories, ledgers
from tests.core.run_ledger_records import RUN
from tests.fixtures.ops import THOROUGH

EVERYTHING = 1_000
LATER = Hlc(1_000, 0, "phone")


def restored(snapshot: Snapshot) -> Snapshot:
    """The snapshot after a stay in a database."""
    return read_snapshot(read_json(canonical(snapshot.to_json())))


def told(merged: Merged, settled: list[Standing]) -> str:
    """All that can be asked of a run, with what earlier snapshots settled."""
    standings = {item.place.id: status.to_json() for item, status in [*settled, *merged.standings]}
    whole: dict[str, Json] = {
        **run_answer(merged),
        "statuses": standings,
        "checkpoint": merged.state.checkpoint(),
        "sealed": merged.sealed,
        "epoch": merged.epoch,
    }
    return canonical(whole).decode()


def winners(merged: Merged) -> list[str]:
    return [entry.place.id for entry in merged.folded]


@THOROUGH
@given(history=histories(), data=st.data())
def test_order_and_repetition_do_not_matter(history: list[Record], data: st.DataObject) -> None:
    repeated = data.draw(st.lists(st.sampled_from(history), max_size=3)) if history else []
    arrived = data.draw(st.permutations([*history, *repeated]))
    assert told(merge(RUN, arrived), []) == told(merge(RUN, history), [])


@THOROUGH
@given(history=histories(), data=st.data())
def test_snapshots_that_keep_everything_and_later_records_give_the_whole(
    history: list[Record], data: st.DataObject
) -> None:
    merged, snapshot = merge(RUN, []), Snapshot()
    for part in data.draw(parts(sorted(history))):
        merged = merge(RUN, data.draw(st.permutations(part)), snapshot)
        snapshot = restored(merged.settle(EVERYTHING)[0])
    assert told(merged, []) == told(merge(RUN, history), [])


@THOROUGH
@given(history=histories(), keep=st.integers(0, 3), data=st.data())
def test_snapshots_that_settle_give_the_whole_or_say_that_they_cannot(
    history: list[Record], keep: int, data: st.DataObject
) -> None:
    """But for late entries of settled seqs, which have lost; what an author writes again drops the snapshot."""
    once = {record.payload: record for record in history}.values()
    before: list[Record] = []
    settled: list[Standing] = []
    merged, snapshot = merge(RUN, []), Snapshot()
    for part in data.draw(parts(sorted(once))):
        before += part
        try:
            merged = merge(RUN, part, snapshot)
        except BelowSnapshot:
            merged, settled = merge(RUN, before), []
        whole = merge(RUN, before)
        late = [one for one in whole.standings if one.item.seq < merged.onto.base.next_seq]
        lost = {one.item.place.id for one in late} - {one.item.place.id for one in settled}
        assert all(one.status.status != "folded" for one in late if one.item.place.id in lost)
        whole.standings = [one for one in whole.standings if one.item.place.id not in lost]
        assert told(merged, settled) == told(whole, [])
        snapshot, forgotten = merged.settle(keep)
        settled += forgotten
        snapshot = restored(snapshot)


@st.composite
def parts(draw: st.DrawFn, records: list[Record]) -> list[list[Record]]:
    """Consecutive parts of sorted records."""
    one, two = sorted((draw(st.integers(0, len(records))), draw(st.integers(0, len(records)))))
    return [records[:one], records[one:two], records[two:]]


@THOROUGH
@given(history=histories())
def test_every_item_has_one_status_and_the_folded_ones_are_a_ledger(history: list[Record]) -> None:
    merged = merge(RUN, history)
    names = [item.place.id for item, _ in merged.standings]
    assert len(set(names)) == len(names)
    records = [entry.record for entry in merged.folded]
    assert [record.seq for record in records] == list(range(merged.state.next_seq))
    replay: Any = readback(records)
    assert (replay["ok"], replay["final_phase"]) == (True, merged.state.phase)


@THOROUGH
@given(ledger=ledgers(), device=st.sampled_from(["phone", "hosted-w-01234567"]))
def test_one_device_reduces_to_the_crate(ledger: list[RecordedEvent], device: str) -> None:
    merged = merge(RUN, [entry(n, device, record) for n, record in enumerate(ledger)])
    assert [entry.record for entry in merged.folded] == ledger
    assert {status.status for _, status in merged.standings} <= {"folded"}


def entry(n: int, device: str, record: RecordedEvent) -> Record:
    return Record(Hlc(n, 0, device), f"op-{n}", canonical(entry_payload(author_of(device), record)))


@THOROUGH
@given(history=histories(), data=st.data())
def test_nothing_sealed_changes_by_records_or_greater_seals(history: list[Record], data: st.DataObject) -> None:
    before = merge(RUN, history)
    sealed = winners(before)[: before.sealed]
    others = data.draw(histories(seals=False))
    forged = seal_payload("phone", RUN, len(sealed), ("other",) * (len(sealed) + 1), 9)
    after = merge(RUN, [*history, *renamed(others), Record(LATER, "op-forged", canonical(forged))])
    assert winners(after)[: before.sealed] == sealed
    assert after.sealed >= before.sealed


def renamed(records: list[Record]) -> list[Record]:
    return [record._replace(op_id=f"other-{record.op_id}") for record in records]


@THOROUGH
@given(history=histories(), data=st.data())
def test_sealing_what_is_folded_changes_no_winner_and_holds_it(history: list[Record], data: st.DataObject) -> None:
    before = merge(RUN, history)
    if not before.folded:
        return
    through = data.draw(st.integers(0, len(before.folded) - 1))
    planned = plan_seal(before, through, seen_at(through, winners(before)[: through + 1]))
    if not planned:
        assert before.sealed > through
        return
    payload = seal_payload("phone", RUN, through, planned, 9)
    after = merge(RUN, [*history, Record(LATER, "op-seal", canonical(payload))])
    assert winners(after) == winners(before)
    assert after.state.checkpoint() == before.state.checkpoint()
    statuses: Any = run_answer(after)["statuses"]
    assert statuses[payload["id"]]["status"] == "folded"
    assert after.sealed > through


@THOROUGH
@given(ledger=ledgers())
def test_an_exported_ledger_is_imported_whole(ledger: list[RecordedEvent]) -> None:
    merged = merge(RUN, [entry(n, "phone", record) for n, record in enumerate(ledger)])
    imported = import_lines(b"".join(export_lines(merged.folded)), RUN)
    assert ([line.record for line in imported.lines], imported.skipped) == (ledger, [])
