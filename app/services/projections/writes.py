"""What hosted writes into streams have in common (server.md §7, §8)."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic

from app.services.hosting import Hold, Write
from app.services.projections.streams import MANY, Ahead, Fold, N, Read, Streams, Where
from app.sql import entries, snapshots
from app.sql.entries import StreamKey
from app.sql.transactions import Driver
from foldpoint.canonical import Json
from foldpoint.hosted import Draft
from foldpoint.op import Op
from foldpoint.projections import Projection

Payload = dict[str, Json]

#: A stream of so many bytes is long, however few its entries are.
LONG_BYTES = 1024 * 1024


@dataclass(slots=True)
class StreamWrite(Generic[N]):
    """One call whose plan goes by what its stream folds to.

    A long stream is folded before the scope's lock is taken, so that what is new since is all that is folded under it.
    """

    fold: ClassVar[Fold[Any, Any]]
    streams: Streams
    #: Which it is, as soon as the call was read; None for a plan that goes by none.
    stream: str | None = field(init=False, default=None)
    ahead: Ahead[Any] | None = field(init=False, default=None)

    async def is_long(self, pg: Driver, scope: int) -> bool:
        """Whether the stream is worth folding ahead."""
        if self.stream is None:
            return False
        key = StreamKey.named(self.fold.projection, self.stream)
        return await snapshots.is_long(pg, scope, key, MANY, LONG_BYTES)

    async def fold_ahead(self, pg: Driver, where: Where) -> Read[N]:
        """Fold the stream as it is before the lock is taken. Raises sealed_scope as `Streams.read` does."""
        assert self.stream is not None
        read: Read[N] = await self.streams.read(pg, where, self.fold, self.stream)
        if read.ahead is not None:
            snapshot = await asyncio.to_thread(self.fold.settled, read.ahead.snapshot)
            self.ahead = read.ahead._replace(snapshot=snapshot)
        return read

    async def now(self, hold: Hold) -> N:
        """What the stream folds to under the lock."""
        assert self.stream is not None
        now: N = await self.streams.go_on(hold.pg, hold.where, self.fold, self.stream, self.ahead)
        return now


def drafts_of(projection: Projection, payloads: Iterable[Payload]) -> list[Draft]:
    return [Draft("personal", projection.tag, payload) for payload in payloads]


def by_id(payloads: Iterable[Payload]) -> dict[str, Payload]:
    return {str(payload["id"]): payload for payload in payloads}


async def not_held(hold: Hold, stream: StreamKey, given: Mapping[str, Payload]) -> list[Payload]:
    """Those of these payloads, by id, that no entry of the stream is."""
    held = await entries.known(hold.pg, hold.where.scope, stream, given)
    return [payload for name, payload in given.items() if name not in held]


def storing(projection: Projection, stream: str, writer: str, payloads: Sequence[Payload], size: int) -> Write:
    """A write, of so many bytes, of what a stream does not have yet; it is answered `{"stored", "duplicate"}`."""
    given = by_id(payloads)

    async def plan(hold: Hold) -> list[Draft] | dict[str, Any]:
        new = await not_held(hold, StreamKey.named(projection, stream), given)
        return drafts_of(projection, new) or told_of(0)

    async def told(_hold: Hold, ops: Sequence[Op]) -> dict[str, Any]:
        return told_of(len(ops))

    def told_of(stored: int) -> dict[str, Any]:
        return {"stored": stored, "duplicate": len(given) - stored}

    return Write(writer, size, plan, told)
