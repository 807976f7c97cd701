"""What a stream of a projection folds to: its latest snapshot and the entries above it (server.md §8)."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from sqlalchemy.ext.asyncio import AsyncEngine

from app.away import DATABASE_ERRORS
from app.problems import Problem
from app.services.pushing.arrivals import off_loop
from app.sql import snapshots
from app.sql.entries import Place, StreamKey
from app.sql.snapshots import Made
from app.sql.transactions import Driver, exclusive
from foldpoint.canonical import Unreadable
from foldpoint.op_text import read_op
from foldpoint.projection import BelowSnapshot
from foldpoint.projections import RUN_LEDGER, Projection
from foldpoint.seal import Keyring, Outcome, opened_payload
from foldpoint.state import Record

#: Entries folded at once, or so many bytes of them.
STEP, STEP_BYTES = 2_000, 8 * 1024 * 1024
#: A read that folded so many entries leaves a snapshot.
MANY = 512
#: Bytes of snapshots that a process keeps as it read them.
PARSED_BYTES = 16 * 1024 * 1024

S = TypeVar("S")
N = TypeVar("N")


class Folded(NamedTuple, Generic[N, S]):
    """What a stream folds to now, and the snapshot to go on from, which may leave the last entries out."""

    now: N
    snapshot: S


@dataclass(frozen=True, slots=True)
class Fold(Generic[N, S]):
    """One projection's fold. Snapshots and what they fold to are shared: never changed.

    `extend` folds records above a snapshot's place, or raises BelowSnapshot if only all records can tell: then `whole`
    folds all of them, where there is a better way than at once. `settled` makes a snapshot quick to go on from. `told`
    is what `verify` compares, as JSON.
    """

    projection: Projection
    start: Callable[[], S]
    read: Callable[[bytes], S]
    write: Callable[[S], bytes]
    place: Callable[[S], Place | None]
    told: Callable[[N], Any]
    extend: Callable[[str, S, list[Record]], Folded[N, S]]
    settled: Callable[[S], S] = lambda snapshot: snapshot
    whole: "Callable[[Driver, Where, str], Awaitable[Folded[N, S]]] | None" = None


class Where(NamedTuple):
    """A scope as a transaction found it; `keyring` is that of an unlocked one.

    What is opened of a sealed scope is in no cache.
    """

    epoch: str
    scope: int
    sealed: bool
    keyring: Keyring | None = None


class Ahead(NamedTuple, Generic[S]):
    """What a stream was folded to before. It can be gone on from while the stream's `late` is this."""

    late: int
    snapshot: S


class Read(NamedTuple, Generic[N]):
    """What was read of so many entries, and the snapshot that is worth keeping, if one is."""

    now: N
    kept: "_Kept | None"
    entries: int = 0
    ahead: Ahead[Any] | None = None


class _Kept(NamedTuple):
    scope: int
    made: Made
    unreadable: list[int]


class _Base(NamedTuple, Generic[S]):
    """A stream's latest snapshot that could be read, or its start; and the numbers of those that could not."""

    snapshot: S
    unreadable: list[int]


class _Found(NamedTuple):
    where: Where
    key: StreamKey
    name: str


@dataclass(slots=True)
class Streams:
    """Streams as one server process reads them."""

    engine: AsyncEngine
    _parsed: "_Parsed" = field(init=False)

    def __post_init__(self) -> None:
        self._parsed = _Parsed()

    async def read(self, pg: Driver, where: Where, fold: Fold[N, S], name: str, *, checked: bool = False) -> Read[N]:
        """Fold a stream, in a transaction of the caller's; one that is not there is empty.

        Raises sealed_scope as `refuse_closed` does, which a caller may have `checked` before.
        """
        if not checked:
            await refuse_closed(pg, where, fold.projection)
        found = _Found(where, StreamKey.named(fold.projection, name), name)
        known = await snapshots.stream(pg, where.scope, found.key)
        if known is None:
            return Read(fold.extend(name, fold.start(), []).now, None)
        base = await self._newest(pg, found, fold)
        folded, count = await _fold(pg, found, fold, base.snapshot)
        count = known.entries if count is None else count
        ahead = Ahead(known.late, folded.snapshot)
        if count < MANY or (place := fold.place(folded.snapshot)) is None:
            return Read(folded.now, None, known.entries, ahead)
        text = await asyncio.to_thread(fold.write, folded.snapshot)
        made = Made(found.key, known.late, place, known.entries, text)
        return Read(folded.now, _Kept(where.scope, made, base.unreadable), known.entries, ahead)

    async def go_on(self, pg: Driver, where: Where, fold: Fold[N, S], name: str, ahead: Ahead[S] | None) -> N:
        """What a stream folds to, for a caller that holds the scope's lock; onto what was read ahead of it, if that
        still holds. Raises sealed_scope as `refuse_closed` does."""
        await refuse_closed(pg, where, fold.projection)
        found = _Found(where, StreamKey.named(fold.projection, name), name)
        known = await snapshots.stream(pg, where.scope, found.key)
        if known is None:
            return fold.extend(name, fold.start(), []).now
        if ahead is not None and ahead.late == known.late:
            base = ahead.snapshot
        else:
            base = (await self._newest(pg, found, fold)).snapshot
        folded, _ = await _fold(pg, found, fold, base)
        return folded.now

    async def keep(self, read: Read[Any]) -> None:
        """Keep the snapshot of a read, whose transaction is over. What came of that stands, if this fails."""
        if (kept := read.kept) is not None:
            with suppress(*DATABASE_ERRORS):
                async with exclusive(self.engine) as pg:
                    await snapshots.keep(pg, kept.scope, kept.made, kept.unreadable)

    async def _newest(self, pg: Driver, found: _Found, fold: Fold[N, S]) -> _Base[S]:
        where, unreadable = found.where, list[int]()
        for number in await snapshots.numbers(pg, where.scope, found.key):
            name = where.epoch, where.scope, number
            if (parsed := self._parsed.get(name)) is not None:
                return _Base(parsed, unreadable)
            if (text := await snapshots.body(pg, where.scope, number)) is None:
                continue
            try:
                snapshot = await off_loop(len(text), fold.read, text)
            except Unreadable:  # another version of the fold made it, or it does not verify
                unreadable.append(number)
                continue
            if not where.sealed:
                self._parsed.put(name, snapshot, len(text))
            return _Base(snapshot, unreadable)
        return _Base(fold.start(), unreadable)


async def refuse_closed(pg: Driver, where: Where, projection: Projection) -> None:
    """Raises sealed_scope, as 503, for a scope without keys; for runs also while an entry is closed for want of one.

    What a failover executor asks of a run may hang on it, as on a closed intent (server.md §6); what is closed has no
    stream, and is no part of any journal or context.
    """
    if not where.sealed:
        return
    if where.keyring is None:
        raise Problem("sealed_scope", "the server holds no keys of this scope", status=503)
    if projection is not RUN_LEDGER:
        return
    async for text in snapshots.closed(pg, where.scope, projection):
        if opened_payload(read_op(text), where.keyring).outcome is Outcome.LACKS_KEY:
            detail = f"an op on {projection.kind} is closed: the server lacks its key"
            raise Problem("sealed_scope", detail, status=503)


async def _fold(pg: Driver, found: _Found, fold: Fold[N, S], base: S) -> tuple[Folded[N, S], int | None]:
    """Fold the entries above a snapshot, and how many they were; None if all had to be."""
    try:
        return await _fold_above(pg, found, fold, base)
    except BelowSnapshot:
        if fold.whole is not None:
            return await fold.whole(pg, found.where, found.name), None
        return await _fold_whole(pg, found, fold), None


async def _fold_above(pg: Driver, found: _Found, fold: Fold[N, S], base: S) -> tuple[Folded[N, S], int]:
    """Step by step."""
    folded: Folded[N, S] | None = None
    waiting: list[Record] = []
    size = left = count = 0
    async for page in snapshots.above(pg, found.where.scope, found.key, fold.place(base)):
        count += len(page)
        size += sum(len(record.payload) for record in page)
        waiting += page
        if len(waiting) >= STEP or size - left >= STEP_BYTES:
            folded = await off_loop(size, fold.extend, found.name, base, waiting)
            base, place = folded.snapshot, fold.place(folded.snapshot)
            waiting = [record for record in waiting if place is None or record[:2] > place]
            size = left = sum(len(record.payload) for record in waiting)
            folded = None if waiting else folded
    if folded is None or waiting:
        folded = await off_loop(size, fold.extend, found.name, base, waiting)
    return folded, count


async def _fold_whole(pg: Driver, found: _Found, fold: Fold[N, S]) -> Folded[N, S]:
    """Fold all entries of a stream at once, as one of them needs what is far below it."""
    pages = [page async for page in snapshots.above(pg, found.where.scope, found.key, None)]
    records = [record for page in pages for record in page]
    size = sum(len(record.payload) for record in records)
    return await off_loop(size, fold.extend, found.name, fold.start(), records)


class _Parsed:
    """Snapshots as they were read, the last ones used: each is of a number that is given once in a server epoch."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, int, int], tuple[Any, int]] = OrderedDict()
        self._size = 0

    def get(self, name: tuple[str, int, int]) -> Any:
        if name not in self._held:
            return None
        self._held.move_to_end(name)
        return self._held[name][0]

    def put(self, name: tuple[str, int, int], snapshot: Any, size: int) -> None:
        if name in self._held or size > PARSED_BYTES:
            return
        self._held[name] = snapshot, size
        self._size += size
        while self._size > PARSED_BYTES:
            _, (_, gone) = self._held.popitem(last=False)
            self._size -= gone
