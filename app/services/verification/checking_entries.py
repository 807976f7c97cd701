"""The part of `verify` that is about the three projections: their entries, streams and snapshots (server.md §8)."""

from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any

from app.problems import Problem
from app.services.projections import contexts, journals, run_ledgers
from app.services.projections.streams import Fold
from app.services.pushing.noting import claimed_in
from app.sql import audit, snapshots
from app.sql.entries import Place, StreamKey, place_of
from app.sql.transactions import Driver
from foldpoint.canonical import Unreadable
from foldpoint.op import Op
from foldpoint.projections import PROJECTIONS, entries_of
from foldpoint.state import Record

FOLDS: tuple[Fold[Any, Any], ...] = (journals.FOLD, run_ledgers.FOLD, contexts.FOLD)
KINDS = {projection.number: projection.kind for projection in PROJECTIONS}


class Entries:
    """The entries that the stored ops bring: the last place of each, and the hash of its payload."""

    def __init__(self) -> None:
        self.found: dict[tuple[StreamKey, bytes], tuple[Place, bytes]] = {}
        self.claims: dict[tuple[bytes, bytes], str] = {}

    def add(self, op: Op) -> None:
        for entry in entries_of([op]):
            slot = StreamKey.of(entry), entry.id
            place = entry.record[:2]
            if slot not in self.found or self.found[slot][0] < place:
                self.found[slot] = place, sha256(entry.record.payload).digest()
            self.claims |= {(one.stream, one.entry): one.op_id for one in claimed_in([entry])}


async def check_entries(pg: Driver, scope: int, entries: Entries) -> AsyncIterator[str]:
    """One sentence per fault. An entry whose op was dropped can only be held to its stream."""
    held: dict[tuple[StreamKey, bytes], tuple[Place, bytes]] = {}
    for row in await audit.entries(pg, scope):
        held[StreamKey(row["projection"], row["stream"]), row["id"]] = place_of(row), row["digest"]
    for slot, (place, digest) in entries.found.items():
        if slot not in held or held[slot][0] < place:
            yield f"the entries of {KINDS[slot[0].projection]} lack op {place[1]}"
        elif held[slot] != (place, digest) and held[slot][0] == place:
            yield f"the entry of op {place[1]} does not say what the op says"
    noted = await audit.claims(pg, scope)
    for op_id in {op_id for slot, op_id in entries.claims.items() if slot not in noted}:
        yield f"it is not noted what op {op_id} handed out of a journal's queue"
    async for fault in _check_streams(pg, scope, held):
        yield fault
    for fold in FOLDS:
        async for fault in _check_snapshots(pg, scope, fold):
            yield fault


async def _check_streams(
    pg: Driver, scope: int, held: dict[tuple[StreamKey, bytes], tuple[Place, bytes]]
) -> AsyncIterator[str]:
    counts: dict[StreamKey, int] = {}
    lasts: dict[StreamKey, Place] = {}
    for (stream, _), (place, _) in held.items():
        counts[stream] = counts.get(stream, 0) + 1
        lasts[stream] = max(place, lasts.get(stream, place))
    listed = {StreamKey(row["projection"], row["key"]): row for row in await audit.entry_streams(pg, scope)}
    for stream in counts.keys() | listed.keys():
        row, count = listed.get(stream), counts.get(stream, 0)
        name = f"a stream of {KINDS[stream.projection]}" if row is None else _name(stream, row["name"])
        if row is None or row["entries"] != count:
            yield f"{name} lists {0 if row is None else row['entries']} entries, there are {count}"
        elif place_of(row) < lasts[stream]:
            yield f"{name} ends before its last entry"


def _name(stream: StreamKey, name: bytes) -> str:
    return f"{KINDS[stream.projection]} {name.decode()!r}"


async def _check_snapshots(pg: Driver, scope: int, fold: Fold[Any, Any]) -> AsyncIterator[str]:
    for row in await audit.entry_snapshots(pg, scope, fold.projection.number):
        key, name = StreamKey(fold.projection.number, row["stream"]), row["name"].decode()
        try:
            snapshot = fold.read(row["body"])
        except Unreadable:  # another version of the fold made it, or it does not verify: no reader takes it
            continue
        place = fold.place(snapshot)
        records = [record async for page in snapshots.above(pg, scope, key, None) for record in page]
        below: list[Record] = [record for record in records if place is not None and record[:2] <= place]
        try:
            own = fold.extend(name, fold.start(), below).now
        except Problem as problem:
            yield f"{_name(key, row['name'])} cannot be folded: {problem.detail}"
            continue
        if place != place_of(row) or fold.told(fold.extend(name, snapshot, []).now) != fold.told(own):
            yield f"a snapshot of {_name(key, row['name'])} is not the fold of its entries"
