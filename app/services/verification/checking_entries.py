"""The part of `verify` that is about entries of the three projections, their streams and claims (server.md §8)."""

from collections.abc import AsyncIterator
from hashlib import sha256
from typing import NamedTuple

from app.services.pushing.noting import claimed_in
from app.sql import audit
from app.sql.claims import Claimed
from app.sql.entries import Place, StreamKey, place_of
from app.sql.transactions import Driver
from foldpoint.op import Op
from foldpoint.projections import PROJECTIONS, entries_of

KINDS = {projection.number: projection.kind for projection in PROJECTIONS}
#: Entries that are looked for at once.
STEP = 500


class _Brought(NamedTuple):
    stream: StreamKey
    id: bytes
    place: Place
    digest: bytes


class Entries:
    """The entries that the stored ops bring, some at a time: each is held, unless a later op of its id is."""

    def __init__(self) -> None:
        self._brought: list[_Brought] = []
        self._claims: list[Claimed] = []

    def add(self, op: Op) -> None:
        for entry in entries_of([op]):
            digest = sha256(entry.record.payload).digest()
            self._brought.append(_Brought(StreamKey.of(entry), entry.id, entry.record[:2], digest))
            self._claims += claimed_in([entry])

    @property
    def are_many(self) -> bool:
        """Whether it is time to check them."""
        return len(self._brought) + len(self._claims) >= STEP

    async def check(self, pg: Driver, scope: int) -> AsyncIterator[str]:
        """One sentence per fault in those that came since the last check."""
        brought, self._brought = self._brought, []
        slots = [(one.stream, one.id) for one in brought]
        found = {row["i"] - 1: row for row in await audit.entries_of(pg, scope, slots)}
        for at, one in enumerate(brought):
            row = found.get(at)
            if row is None or place_of(row) < one.place:
                yield f"the entries of {KINDS[one.stream.projection]} lack op {one.place[1]}"
            elif place_of(row) == one.place and row["digest"] != one.digest:
                yield f"the entry of op {one.place[1]} does not say what the op says"
        claims, self._claims = self._claims, []
        noted = await audit.claims_of(pg, scope, [(one.stream, one.entry) for one in claims])
        for op_id in {one.op_id for one in claims if (one.stream, one.entry) not in noted}:
            yield f"it is not noted what op {op_id} handed out of a journal's queue"


async def check_streams(pg: Driver, scope: int) -> AsyncIterator[str]:
    """One sentence per stream that is not what its entries say."""
    async for row in audit.entry_streams(pg, scope):
        kind = KINDS[row["projection"]]
        name = f"a stream of {kind}" if row["name"] is None else f"{kind} {row['name'].decode()!r}"
        if row["entries"] != row["found"]:
            yield f"{name} lists {row['entries']} entries, there are {row['found']}"
        elif row["found"] and place_of(row) < place_of(row, "last_"):
            yield f"{name} ends before its last entry"
