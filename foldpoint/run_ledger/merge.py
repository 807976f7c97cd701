"""One ledger out of what several devices recorded of a run (run-ledger.md §12, server.md §8).

At each seq the first legal entry in (hlc, op_id) order wins, unless a seal has fixed the winner. A merge is a pure
function of the set of records; a snapshot and the records after it give what all records give.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from foldpoint.canonical import Json
from foldpoint.hlc import Hlc
from foldpoint.projection import BelowSnapshot
from foldpoint.run_ledger.entry import Entry, Item, Seal, read_item
from foldpoint.run_ledger.equality import same_json
from foldpoint.run_ledger.errors import IllegalEvent
from foldpoint.run_ledger.seals import in_force
from foldpoint.run_ledger.snapshot import Snapshot
from foldpoint.run_ledger.state import RunState
from foldpoint.run_ledger.transitions import apply, refusal
from foldpoint.state import Record

#: The last folded seqs that a snapshot keeps whole, so that late entries and seals there need no whole merge.
WINDOW = 64


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


@dataclass(slots=True)
class Merged:
    """A run after a merge. `standings` are of all items at or above the snapshot that it began from, by seq."""

    onto: Snapshot
    through: tuple[Hlc, str] | None
    state: RunState
    blocked_at: int | None = None
    #: The winners from the snapshot on.
    folded: list[Entry] = field(default_factory=list)
    standings: list[Standing] = field(default_factory=list)
    #: The seqs below this are all sealed.
    sealed: int = 0
    #: The highest epoch that sealed anything.
    epoch: int | None = None

    def settle(self, keep: int = WINDOW) -> tuple[Snapshot, list[Standing]]:
        """A snapshot at the last record, and the standings that it forgets: they hold for good.

        Nothing settled changes while no record at or below the snapshot's stamp comes, goes or moves.
        """
        start = self._cut(keep)
        base = self.onto.base.copy()
        for entry in self.folded[: start - base.next_seq]:
            apply(base, entry.record)
        settled = [standing for standing in self.standings if standing.item.first_seq < start]
        kept = tuple(standing.item for standing in self.standings if standing.item.first_seq >= start)
        epochs = [self.onto.epoch, *(_epoch(standing) for standing in settled)]
        epoch = max((epoch for epoch in epochs if epoch is not None), default=None)
        return Snapshot(self.through, base, min(self.sealed, start), epoch, kept), settled

    def _cut(self, keep: int) -> int:
        """The lowest seq to keep: no seal reaches across it."""
        start = max(self.state.next_seq - keep, self.onto.base.next_seq)
        seals = [item for item, _ in self.standings if isinstance(item, Seal)]
        for seal in sorted(seals, key=lambda seal: seal.seq, reverse=True):
            if seal.first_seq < start <= seal.seq:
                start = seal.first_seq
        return start


def merge(run_id: str, records: Iterable[Record], onto: Snapshot | None = None) -> Merged:
    """Merge a run's records, in any order, onto a snapshot that holds everything before them.

    Raises BelowSnapshot where only a merge of all records can answer.
    """
    onto = onto or Snapshot()
    arrived = sorted(records)
    if onto.through and arrived and arrived[0][:2] <= onto.through:
        raise BelowSnapshot("a record at or below the snapshot's stamp")
    through = arrived[-1][:2] if arrived else onto.through
    items = {item.place.id: item for item in onto.open}
    for record in arrived:
        item = read_item(record, run_id)
        if item and item.first_seq < onto.base.next_seq:
            raise BelowSnapshot(f"seq {item.first_seq}, below the snapshot's entries")
        if item:
            items[item.place.id] = item
    merged = Merged(onto, through, onto.base.continued(), sealed=onto.sealed)
    _fold(merged, sorted(items.values(), key=lambda item: item.place))
    return merged


def _fold(merged: Merged, items: list[Item]) -> None:
    seals = [item for item in items if isinstance(item, Seal)]
    fixed, illegal = in_force(seals)
    candidates: dict[int, list[Entry]] = defaultdict(list)
    for item in items:
        if isinstance(item, Entry):
            candidates[item.seq].append(item)
    while not merged.state.terminal and _fold_seq(merged, candidates, fixed):
        pass
    for seq in sorted(candidates):
        merged.standings.extend(Standing(entry, _beyond(merged.state, entry)) for entry in candidates[seq])
    for seal in seals:
        merged.standings.append(Standing(seal, _seal_status(merged.state, seal, illegal.get(seal.place.id))))
    while merged.sealed in fixed and merged.sealed < merged.state.next_seq:
        merged.sealed += 1
    epochs = [merged.onto.epoch, *(_epoch(standing) for standing in merged.standings)]
    merged.epoch = max((epoch for epoch in epochs if epoch is not None), default=None)


def _fold_seq(merged: Merged, candidates: dict[int, list[Entry]], fixed: dict[int, str]) -> bool:
    """Judge the candidates of the next seq and take the winner; whether there was one."""
    state = merged.state
    entries = candidates.pop(state.next_seq, [])
    winner, standings = _sealed(state, entries, fixed) if state.next_seq in fixed else _first_legal(state, entries)
    merged.standings.extend(standings)
    if winner is not None:
        merged.folded.append(winner)
        apply(state, winner.record)
    elif any(standing.status.error for standing in standings):
        merged.blocked_at = state.next_seq
    return winner is not None


def _first_legal(state: RunState, entries: list[Entry]) -> tuple[Entry | None, list[Standing]]:
    winner: Entry | None = None
    standings = []
    for entry in entries:
        error = refusal(state, entry.record)
        if winner is not None and same_json(entry.record.event, winner.record.event):
            status = Status("duplicate", winner.place.id)
        elif error is not None:
            status = Status("illegal", error=error)
        elif winner is not None:
            status = Status("superseded", winner.place.id)
        else:
            winner, status = entry, Status("folded")
        standings.append(Standing(entry, status))
    return winner, standings


def _sealed(state: RunState, entries: list[Entry], fixed: dict[int, str]) -> tuple[Entry | None, list[Standing]]:
    """The fixed winner wins, or nobody: there is a gap until it arrives, and the run is blocked if it is illegal."""
    name = fixed[state.next_seq]
    winner = next((entry for entry in entries if entry.place.id == name), None)
    error = refusal(state, winner.record) if winner else None
    standings = []
    for entry in entries:
        if entry is winner:
            status = Status("illegal", error=error) if error else Status("folded")
        elif winner and same_json(entry.record.event, winner.record.event):
            status = Status("duplicate", name)
        else:
            status = Status("superseded", name)
        standings.append(Standing(entry, status))
    return None if error else winner, standings


def _beyond(state: RunState, entry: Entry) -> Status:
    """The status of an entry at or above the next seq that nobody judged."""
    if not state.terminal:
        return Status("pending")
    return Status("after_terminal", error=refusal(state, entry.record) if entry.seq == state.next_seq else None)


def _seal_status(state: RunState, seal: Seal, error: IllegalEvent | None) -> Status:
    if error is not None:
        return Status("illegal", error=error)
    return Status("folded" if seal.seq < state.next_seq else "pending")


def _epoch(standing: Standing) -> int | None:
    """The epoch of a seal that is in force."""
    item, status = standing
    return item.epoch if isinstance(item, Seal) and status.error is None else None
