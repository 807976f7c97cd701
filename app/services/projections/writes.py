"""What hosted writes into streams have in common (server.md §7, §8)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic

from app.services.hosting import Hold, Write
from app.services.projections.streams import N, Read, Streams
from app.sql import entries
from app.sql.entries import StreamKey
from foldpoint.canonical import Json
from foldpoint.hosted import Draft
from foldpoint.op import Op
from foldpoint.projections import Projection

Payload = dict[str, Json]


@dataclass(slots=True)
class Keeping(Generic[N]):
    """One call. What it read of its stream is remembered, to keep the snapshot once the transaction is over.

    A writer may never read.
    """

    streams: Streams
    _read: Read[N] | None = field(init=False, default=None)

    async def keep(self) -> None:
        if self._read is not None:
            await self.streams.keep(self._read)


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
