"""A seal fixes winners, whatever comes late (run-ledger.md §12, server.md §8)."""

from typing import Any

from foldpoint.canonical import Json, canonical
from foldpoint.hlc import Hlc
from foldpoint.run_ledger.answers import run_answer
from foldpoint.run_ledger.entry import entry_payload, seal_payload
from foldpoint.run_ledger.merge import Merged, merge
from foldpoint.run_ledger.wire import Event, RecordedEvent
from foldpoint.state import Record
from tests.core.run_ledger_records import RUN, STARTS, context, event


class Run:
    """The records of one run, each named by its device and wall time."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.ids: dict[str, str] = {}

    def record(self, device: str, wall_ms: int, seq: int, told: Event, at: int = 0) -> str:
        return self._add(device, wall_ms, entry_payload(device, RecordedEvent(seq, at, told)))

    def seal(self, device: str, wall_ms: int, through_seq: int, *winners: str, epoch: int = 1) -> str:
        return self._add(device, wall_ms, seal_payload(device, RUN, through_seq, winners, epoch))

    def _add(self, device: str, wall_ms: int, payload: dict[str, Json]) -> str:
        self.records.append(Record(Hlc(wall_ms, 0, device), f"op-{device}-{wall_ms}", canonical(payload)))
        return str(payload["id"])

    def merged(self) -> Merged:
        return merge(RUN, self.records)

    def statuses(self) -> Any:
        return run_answer(self.merged())["statuses"]

    def folded(self) -> list[str]:
        return [entry.place.id for entry in self.merged().folded]


def built(turn: str) -> Event:
    return event("context_built", turn_id=turn, context=context())


def started() -> tuple[Run, str, str]:
    run = Run()
    return run, run.record("a", 1, 0, STARTS[0]), run.record("a", 10, 1, built("tA"))


def test_a_late_record_displaces_what_nobody_sealed() -> None:
    run, start, _ = started()
    late = run.record("b", 9, 1, built("tB"))
    assert run.folded() == [start, late]


def test_a_late_record_does_not_displace_what_is_sealed() -> None:
    run, start, first = started()
    seal = run.seal("a", 11, 1, start, first)
    late = run.record("b", 9, 1, built("tB"))
    assert run.folded() == [start, first]
    assert run.statuses() == {
        start: {"status": "folded"},
        first: {"status": "folded"},
        late: {"status": "superseded", "winner": first},
        seal: {"status": "folded"},
    }
    assert (run.merged().sealed, run.merged().epoch) == (2, 1)


def test_at_a_sealed_seq_the_same_event_is_a_duplicate_and_an_illegal_one_superseded() -> None:
    run, start, first = started()
    run.seal("a", 11, 1, start, first)
    same = run.record("b", 5, 1, built("tA"), at=3)
    wrong = run.record("b", 6, 1, event("run_finished"))
    assert run.statuses()[same] == {"status": "duplicate", "winner": first}
    assert run.statuses()[wrong] == {"status": "superseded", "winner": first}


def test_a_seal_of_the_rest_continues_a_seal() -> None:
    run, start, first = started()
    run.seal("a", 11, 0, start)
    run.seal("a", 12, 1, first)
    late = run.record("b", 9, 1, built("tB"))
    assert run.folded() == [start, first]
    assert run.merged().sealed == 2
    assert run.statuses()[late]["status"] == "superseded"


def test_of_two_seals_that_disagree_the_one_of_the_smaller_epoch_holds() -> None:
    run, start, first = started()
    other = run.record("b", 9, 1, built("tB"))
    high = run.seal("a", 11, 1, start, first, epoch=2)
    assert run.folded() == [start, first]
    low = run.seal("b", 99, 1, start, other, epoch=1)
    assert run.folded() == [start, other]
    assert run.statuses()[low] == {"status": "folded"}
    illegal = run.statuses()[high]
    assert illegal["status"] == "illegal"
    assert illegal["error"]["variant"] == "SealMismatch"
    assert illegal["error"]["fields"] == {"seq": 1, "expected": other, "actual": first}
    assert run.merged().epoch == 1


def test_of_two_seals_of_one_epoch_the_earlier_holds() -> None:
    run, start, first = started()
    other = run.record("b", 9, 1, built("tB"))
    run.seal("a", 12, 1, start, first)
    assert run.folded() == [start, first]
    run.seal("b", 11, 1, start, other)
    assert run.folded() == [start, other]


def test_a_seal_that_disagrees_anywhere_fixes_nothing() -> None:
    run, start, first = started()
    run.seal("a", 11, 1, start, first)
    early = run.record("b", 20, 2, event("model_requested", turn_id="tA", step=0, model="early"))
    late = run.record("b", 21, 2, event("model_requested", turn_id="tA", step=0, model="late"))
    illegal = run.seal("b", 22, 2, "other", late, epoch=2)
    assert run.folded() == [start, first, early]
    assert run.statuses()[illegal]["status"] == "illegal"
    assert run.merged().epoch == 1


def test_until_a_sealed_winner_arrives_there_is_a_gap() -> None:
    run, start, first = started()
    absent = Run().record("c", 12, 1, built("tC"))
    seal = run.seal("c", 13, 1, absent)
    above = run.record("a", 14, 2, event("model_requested", turn_id="tA", step=0, model="m"))
    assert run.folded() == [start]
    assert run.merged().blocked_at is None
    assert run.statuses()[first] == {"status": "superseded", "winner": absent}
    assert run.statuses()[above] == {"status": "pending"}
    assert run.statuses()[seal] == {"status": "pending"}
    assert run.merged().sealed == 0
    run.seal("c", 15, 1, start, absent)
    assert run.merged().sealed == 1
    run.record("c", 12, 1, built("tC"))
    assert run.folded() == [start, absent]


def test_an_illegal_sealed_winner_blocks_the_run() -> None:
    run, start, first = started()
    wrong = run.record("b", 12, 1, event("run_finished"))
    run.seal("b", 13, 1, start, wrong)
    assert run.folded() == [start]
    assert run.merged().blocked_at == 1
    assert run.statuses()[wrong]["status"] == "illegal"
    assert run.statuses()[first] == {"status": "superseded", "winner": wrong}


def test_seals_of_seqs_that_are_not_contiguous_leave_the_rest_open() -> None:
    run, start, first = started()
    run.seal("a", 11, 1, first)
    assert run.merged().sealed == 0
    run.seal("a", 12, 0, start)
    assert run.merged().sealed == 2
