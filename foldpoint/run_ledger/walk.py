"""A ledger seq by seq: which candidate wins, and what becomes of the others (run-ledger.md §12, server.md §8)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from foldpoint.canonical import Json
from foldpoint.run_ledger.entry import Entry, Item, Seal
from foldpoint.run_ledger.equality import same_json
from foldpoint.run_ledger.errors import IllegalEvent
from foldpoint.run_ledger.state import RunState, Step
from foldpoint.run_ledger.transitions import decide, refusal
from foldpoint.run_ledger.wire import RecordedEvent


class Status(NamedTuple):
    """What became of an item: `winner` is the id that has its seq, `error` why it is not legal."""

    status: Literal["folded", "duplicate", "superseded", "illegal", "pending", "after_terminal"]
    winner: str | None = None
    error: IllegalEvent | None = None

    def to_json(self) -> dict[str, Json]:
        told: dict[str, Json] = {"status": self.status}
        if self.winner is not None:
            told["winner"] = self.winner
        if self.error is not None:
            told["error"] = self.error.to_json()
        return told


class Standing(NamedTuple):
    item: Item
    status: Status


class Judged(NamedTuple):
    """The winner of a seq, if it has one, and what became of all its candidates."""

    winner: Entry | None
    standings: list[Standing]


@dataclass(slots=True)
class Walk:
    """`state` is that after the seqs judged so far; `fixed` are the winners that seals fix, by seq."""

    state: RunState
    fixed: Mapping[int, str]
    blocked_at: int | None = None

    def judge(self, seq: int, entries: Sequence[Entry]) -> Judged:
        """Judge all candidates of a seq, which are in (hlc, op_id) order, and take the winner.

        Seqs come in ascending order, each once; those without a candidate are left out.
        """
        state = self.state
        if seq != state.next_seq or state.terminal:
            return Judged(None, [Standing(entry, _beyond(state, entry)) for entry in entries])
        name = self.fixed.get(seq)
        winner, step, standings = _first_legal(state, entries) if name is None else _sealed(state, entries, name)
        if winner is not None and step is not None:
            state.take(winner.record, step)
            return Judged(winner, standings)
        if any(standing.status.error for standing in standings):
            self.blocked_at = seq
        return Judged(None, standings)

    def seal(self, seal: Seal, error: IllegalEvent | None) -> Standing:
        """What becomes of a seal, once all seqs are judged; `error` is why it is not in force."""
        if error is not None:
            return Standing(seal, Status("illegal", error=error))
        return Standing(seal, Status("folded" if seal.seq < self.state.next_seq else "pending"))


#: The winner, what it changes, and what became of all candidates.
_Decided = tuple[Entry | None, Step | None, list[Standing]]


def _decide(state: RunState, record: RecordedEvent) -> tuple[Step | None, IllegalEvent | None]:
    """What a record changes, or why it is not legal."""
    try:
        return decide(state, record), None
    except IllegalEvent as error:
        return None, error


def _first_legal(state: RunState, entries: Sequence[Entry]) -> _Decided:
    winner: Entry | None = None
    taken: Step | None = None
    standings = []
    for entry in entries:
        step, error = _decide(state, entry.record)
        if winner is not None and same_json(entry.record.event, winner.record.event):
            status = Status("duplicate", winner.place.id)
        elif error is not None:
            status = Status("illegal", error=error)
        elif winner is not None:
            status = Status("superseded", winner.place.id)
        else:
            winner, taken, status = entry, step, Status("folded")
        standings.append(Standing(entry, status))
    return winner, taken, standings


def _sealed(state: RunState, entries: Sequence[Entry], name: str) -> _Decided:
    """The fixed winner wins, or nobody: there is a gap until it arrives, and the run is blocked if it is illegal."""
    winner = next((entry for entry in entries if entry.place.id == name), None)
    step, error = _decide(state, winner.record) if winner else (None, None)
    standings = []
    for entry in entries:
        if entry is winner:
            status = Status("illegal", error=error) if error else Status("folded")
        elif winner and same_json(entry.record.event, winner.record.event):
            status = Status("duplicate", name)
        else:
            status = Status("superseded", name)
        standings.append(Standing(entry, status))
    return winner, step, standings


def _beyond(state: RunState, entry: Entry) -> Status:
    """The status of an entry at or above the next seq that nobody judged."""
    if not state.terminal:
        return Status("pending")
    return Status("after_terminal", error=refusal(state, entry.record) if entry.seq == state.next_seq else None)
