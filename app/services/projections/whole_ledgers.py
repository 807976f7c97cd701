"""A run from its first seq to its last, in bounded memory: for audits, and where no snapshot can tell."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from app.services.projections.streams import Where, refuse_closed
from app.services.pushing.arrivals import off_loop
from app.sql import run_ledgers
from app.sql.entries import StreamKey
from app.sql.transactions import Driver
from foldpoint.projections import RUN_LEDGER
from foldpoint.run_ledger.entry import Entry, Seal, read_item, seq_of
from foldpoint.run_ledger.errors import SealMismatch
from foldpoint.run_ledger.merge import WINDOW, Merged, cut_of, merge
from foldpoint.run_ledger.seals import in_force
from foldpoint.run_ledger.snapshot import Snapshot
from foldpoint.run_ledger.state import RunState
from foldpoint.run_ledger.walk import Judged, Standing, Walk
from foldpoint.state import Record

#: Entries read at once, or so many bytes of them; all candidates of one seq come together.
PART, PART_BYTES = 500, 8 * 1024 * 1024


class _Named(NamedTuple):
    """An entry by its seq and its place among all, which is read when its turn comes."""

    seq: int
    number: int
    id: bytes
    size: int


@dataclass(slots=True)
class WholeLedger:
    """All items of a run as one transaction sees them: its seals, and the entries by name, in the order of seqs."""

    pg: Driver
    scope: int
    key: StreamKey
    run_id: str
    named: list[_Named]
    seals: list[Seal]
    fixed: dict[int, str]
    illegal: dict[str, SealMismatch]
    last: Record | None = None

    @classmethod
    async def of(cls, pg: Driver, where: Where, run_id: str) -> "WholeLedger":
        """Look at every entry once, to know its seq. Raises sealed_scope, as 503, while one may be closed."""
        await refuse_closed(pg, where, RUN_LEDGER)
        key = StreamKey.named(RUN_LEDGER, run_id)
        named: list[_Named] = []
        seals: list[Seal] = []
        last = None
        async for page in run_ledgers.entries(pg, where.scope, key):
            size = sum(len(record.payload) for record in page)
            await off_loop(size, _note, page, run_id, named, seals)
            last = page[-1]
        named.sort()
        fixed, illegal = in_force(seals)
        return cls(pg, where.scope, key, run_id, named, seals, fixed, illegal, last)

    async def judged(self, walk: Walk, through: int | None = None) -> AsyncIterator[list[Judged]]:
        """Judge seq after seq, up to one if it is given."""
        for part in _parts(self.named, through):
            records = await run_ledgers.of_ids(self.pg, self.scope, self.key, [one.id for one in part])
            size = sum(one.size for one in part)
            yield await off_loop(size, _judge, walk, self.run_id, records)

    def walk(self) -> Walk:
        return Walk(RunState(), self.fixed)

    async def standings(self, above: int = -1, through: int | None = None) -> AsyncIterator[list[Standing]]:
        """What became of all items above a seq, up to one if it is given: in the order of seqs, seals last."""
        walk = self.walk()
        waiting = sorted(self.seals, key=lambda seal: (seal.seq, seal.place), reverse=True)

        def told(reached: int | None) -> Iterator[Standing]:
            while waiting and (reached is None or waiting[-1].seq <= reached):
                seal = waiting.pop()
                yield walk.seal(seal, self.illegal.get(seal.place.id))

        async for part in self.judged(walk, through):
            found = [standing for judged in part for standing in judged.standings]
            if found:
                found += told(found[-1].item.seq)
            yield [standing for standing in found if standing.item.seq > above]
        yield [standing for standing in told(through) if standing.item.seq > above]

    def page_end(self, above: int, limit: int) -> int | None:
        """The seq with which about so many items above one end; None if no more are there."""
        seqs = sorted(
            seq for seq in (*(one.seq for one in self.named), *(seal.seq for seal in self.seals)) if seq > above
        )
        return seqs[limit - 1] if len(seqs) > limit and seqs[limit - 1] < seqs[-1] else None

    async def winners(self, first: int, end: int) -> list[str]:
        """The ids that have won the seqs from one up to another, all of which are folded."""
        winners: list[str] = []
        async for part in self.judged(self.walk(), end - 1):
            found = (judged.winner for judged in part)
            winners += [entry.place.id for entry in found if entry is not None and entry.seq >= first]
        return winners

    async def merged(self) -> Merged:
        """What a merge of all records gives, with the standings of the last seqs."""
        walk = self.walk()
        async for _ in self.judged(walk):
            pass
        start = cut_of(self.seals, max(walk.state.next_seq - WINDOW, 0))
        below = self.walk()
        async for _ in self.judged(below, start - 1):
            pass
        open_ids = [one.id for one in self.named if one.seq >= start]
        items = [read_item(record, self.run_id) for record in await self._records(open_ids)]
        seals = [seal for seal in self.seals if seal.first_seq >= start]
        settled = [seal for seal in self.seals if seal.first_seq < start and seal.place.id not in self.illegal]
        sealed = next(seq for seq in range(start + 1) if seq == start or seq not in self.fixed)
        epoch = max((seal.epoch for seal in settled), default=None)
        kept = (*(item for item in items if item is not None), *seals)
        through = None if self.last is None else self.last[:2]
        return merge(self.run_id, [], Snapshot(through, below.state, sealed, epoch, kept))

    async def _records(self, ids: list[bytes]) -> list[Record]:
        return await run_ledgers.of_ids(self.pg, self.scope, self.key, ids)


def _note(page: list[Record], run_id: str, named: list[_Named], seals: list[Seal]) -> None:
    for record in page:
        payload = record.value()
        if (seq := seq_of(payload)) is not None:
            named.append(_Named(seq, len(named), bytes.fromhex(payload["id"]), len(record.payload)))
        elif isinstance(item := read_item(record, run_id), Seal):
            seals.append(item)


def _parts(named: list[_Named], through: int | None) -> Iterator[list[_Named]]:
    part: list[_Named] = []
    size = 0
    for seq, candidates in groupby(named, attrgetter("seq")):
        if through is not None and seq > through:
            break
        if len(part) >= PART or size >= PART_BYTES:
            yield part
            part, size = [], 0
        for one in candidates:
            part.append(one)
            size += one.size
    if part:
        yield part


def _judge(walk: Walk, run_id: str, records: list[Record]) -> list[Judged]:
    read = (read_item(record, run_id) for record in records)
    entries = [item for item in read if isinstance(item, Entry)]
    return [walk.judge(seq, list(candidates)) for seq, candidates in groupby(entries, attrgetter("seq"))]
