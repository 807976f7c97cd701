"""One ledger out of what several devices recorded of a run (run-ledger.md §12, server.md §8).

At each seq the first legal entry in (hlc, op_id) order wins, unless a seal has fixed the winner. A merge is a pure
function of the set of records; a snapshot and the records after it give what all records give.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from foldpoint.hlc import Hlc
from foldpoint.projection import BelowSnapshot
from foldpoint.run_ledger.entry import Entry, Item, Seal, read_item
from foldpoint.run_ledger.seals import in_force
from foldpoint.run_ledger.snapshot import Snapshot
from foldpoint.run_ledger.state import RunState
from foldpoint.run_ledger.transitions import apply
from foldpoint.run_ledger.walk import Standing, Walk
from foldpoint.state import Record

#: The last folded seqs that a snapshot keeps whole, so that late seals there need no whole merge.
WINDOW = 64


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
        start = self.cut(keep)
        base = self.onto.base.copy()
        for entry in self.folded[: start - base.next_seq]:
            apply(base, entry.record)
        settled = [standing for standing in self.standings if standing.item.first_seq < start]
        kept = tuple(standing.item for standing in self.standings if standing.item.first_seq >= start)
        epochs = [self.onto.epoch, *(_epoch(standing) for standing in settled)]
        epoch = max((epoch for epoch in epochs if epoch is not None), default=None)
        return Snapshot(self.through, base, min(self.sealed, start), epoch, kept), settled

    def cut(self, keep: int = WINDOW) -> int:
        """The lowest seq that `settle` keeps: no seal reaches across it."""
        start = max(self.state.next_seq - keep, self.onto.base.next_seq)
        seals = (item for item, _ in self.standings if isinstance(item, Seal))
        return cut_of(seals, start)

    def with_records(self, run_id: str, records: Iterable[Record]) -> "Merged":
        """The run with records that come after all others."""
        items = tuple(item for item, _ in self.standings)
        onto = self.onto
        return merge(run_id, records, Snapshot(self.through, onto.base, onto.sealed, onto.epoch, items))


def cut_of(seals: Iterable[Seal], start: int) -> int:
    """The highest seq up to `start` that no seal reaches across."""
    for seal in sorted(seals, key=lambda seal: seal.seq, reverse=True):
        if seal.first_seq < start <= seal.seq:
            start = seal.first_seq
    return start


def merge(run_id: str, records: Iterable[Record], onto: Snapshot | None = None) -> Merged:
    """Merge a run's records, in any order, onto a snapshot that holds everything before them.

    A record of a settled seq has lost there, and is left out. Raises BelowSnapshot where only a merge of all records
    can answer.
    """
    onto = onto or Snapshot()
    arrived = sorted(records)
    if onto.through and arrived and arrived[0][:2] <= onto.through:
        raise BelowSnapshot("a record at or below the snapshot's stamp")
    through = arrived[-1][:2] if arrived else onto.through
    items = {item.place.id: item for item in onto.open}
    for record in arrived:
        item = read_item(record, run_id)
        if item is None or (isinstance(item, Entry) and item.seq < onto.base.next_seq):
            continue
        if item.first_seq < onto.base.next_seq:
            raise BelowSnapshot(f"seals seq {item.first_seq}, below the snapshot's entries")
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
    walk = Walk(merged.state, fixed)
    for seq in sorted(candidates):
        winner, standings = walk.judge(seq, candidates[seq])
        merged.standings.extend(standings)
        if winner is not None:
            merged.folded.append(winner)
    merged.standings.extend(walk.seal(seal, illegal.get(seal.place.id)) for seal in seals)
    merged.blocked_at = walk.blocked_at
    while merged.sealed in fixed and merged.sealed < merged.state.next_seq:
        merged.sealed += 1
    epochs = [merged.onto.epoch, *(_epoch(standing) for standing in merged.standings)]
    merged.epoch = max((epoch for epoch in epochs if epoch is not None), default=None)


def _epoch(standing: Standing) -> int | None:
    """The epoch of a seal that is in force."""
    item, status = standing
    return item.epoch if isinstance(item, Seal) and status.error is None else None
