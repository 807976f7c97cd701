"""The part of `verify` that is about snapshots of streams: each stream is folded once, past all of its snapshots."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.problems import Problem
from app.services.projections import contexts, journals, run_ledgers
from app.services.projections.streams import STEP, STEP_BYTES, Fold
from app.services.pushing.arrivals import off_loop
from app.sql import audit, snapshots
from app.sql.entries import Place, StreamKey, place_of
from app.sql.transactions import Driver, Row
from foldpoint.canonical import Unreadable
from foldpoint.projection import BelowSnapshot
from foldpoint.state import Record

FOLDS: Mapping[int, Fold[Any, Any]] = {
    fold.projection.number: fold for fold in (journals.FOLD, run_ledgers.FOLD, contexts.FOLD)
}


async def check_snapshots(pg: Driver, scope: int, folds: Mapping[int, Fold[Any, Any]] = FOLDS) -> AsyncIterator[str]:
    """One sentence per snapshot that is not the fold of its stream's entries up to its place."""
    refold: _Refold | None = None
    async for row in audit.entry_snapshots(pg, scope):
        key, fold = StreamKey(row["projection"], row["stream"]), folds[row["projection"]]
        if refold is None or refold.key != key:
            refold = _Refold(pg, scope, key, row["name"].decode(), fold, fold.start())
        if (fault := await _fault(refold, row)) is not None:
            yield fault


async def _fault(refold: "_Refold", row: Row) -> str | None:
    fold, name = refold.fold, f"{refold.fold.projection.kind} {refold.name!r}"
    text = await snapshots.body(refold.pg, refold.scope, row["id"])
    try:
        snapshot = await off_loop(len(text or b""), fold.read, text or b"")
    except Unreadable:  # another version of the fold made it, or it does not verify: no reader takes it
        return None
    try:
        own = fold.told(await refold.upto(place_of(row)))
    except Problem as problem:
        return f"{name} cannot be folded: {problem.detail}"
    if fold.place(snapshot) != place_of(row) or fold.told(fold.extend(refold.name, snapshot, []).now) != own:
        return f"a snapshot of {name} is not the fold of its entries"
    return None


@dataclass(slots=True)
class _Refold:
    """One stream, folded from its start to one place after another."""

    pg: Driver
    scope: int
    key: StreamKey
    name: str
    fold: Fold[Any, Any]
    base: Any
    #: Up to where its entries were read.
    through: Place | None = None
    #: Those of them that the base leaves out.
    waiting: list[Record] = field(default_factory=list)

    async def upto(self, place: Place) -> Any:
        """What the entries up to a place fold to. Raises Problem where nothing can tell."""
        try:
            new = size = 0
            async for page in snapshots.between(self.pg, self.scope, self.key, self.through, place):
                self.waiting += page
                self.through = page[-1][:2]
                new, size = new + len(page), size + sum(len(record.payload) for record in page)
                if new >= STEP or size >= STEP_BYTES:
                    await self._fold()
                    new = size = 0
            return await self._fold()
        except BelowSnapshot:
            return await self._whole(place)

    async def _fold(self) -> Any:
        size = sum(len(record.payload) for record in self.waiting)
        folded = await off_loop(size, self.fold.extend, self.name, self.base, self.waiting)
        self.base = await off_loop(size, self.fold.settled, folded.snapshot)
        at = self.fold.place(self.base)
        self.waiting = [record for record in self.waiting if at is None or record[:2] > at]
        return folded.now

    async def _whole(self, place: Place) -> Any:
        """Fold all of them at once, as one needs what is far below it."""
        pages = [page async for page in snapshots.between(self.pg, self.scope, self.key, None, place)]
        self.base, self.waiting = self.fold.start(), [record for page in pages for record in page]
        self.through = place
        return await self._fold()
