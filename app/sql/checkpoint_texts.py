"""The texts of stored checkpoints, in compressed chunks."""

import asyncio
from collections.abc import AsyncIterator

import zstandard

from app.sql.checkpoints import Stored
from app.sql.transactions import Driver

#: Canonical text of one chunk, before compression.
CHUNK_BYTES = 256 * 1024
LEVEL = 3

REPLACE_FIRST = "update checkpoint_chunk set body = $3 where scope = $1 and checkpoint = $2 and no = 0"
ADD_CHUNK = "insert into checkpoint_chunk (scope, checkpoint, no, starts_at, body) values ($1, $2, $3, $4, $5)"
READ = """
select starts_at, body from checkpoint_chunk
where scope = $1 and checkpoint = $2
  and starts_at > $3::bigint - $4::bigint and starts_at <= $3 and $3 < $5::bigint
"""


class TextGone(RuntimeError):
    """A checkpoint's text is not all there."""


class Text:
    """Writes a checkpoint's text chunk by chunk, and knows its length."""

    def __init__(self, pg: Driver, scope: int, checkpoint: int) -> None:
        self._pg, self._place = pg, (scope, checkpoint)
        self._buffer = bytearray()
        self._no = 0
        self.size = 0

    async def write(self, piece: bytes) -> None:
        self._buffer += piece
        while len(self._buffer) >= CHUNK_BYTES:
            await self._flush(CHUNK_BYTES)

    async def finish(self) -> None:
        if self._buffer:
            await self._flush(len(self._buffer))

    async def replace_in_first(self, old: bytes, new: bytes) -> None:
        """Replace bytes near the beginning, now that the text is written, by as many others."""
        row = await self._pg.fetchrow(READ, *self._place, 0, CHUNK_BYTES, self.size)
        assert row is not None
        assert len(old) == len(new)
        body = zstandard.compress(zstandard.decompress(row["body"]).replace(old, new, 1), LEVEL)
        await self._pg.execute(REPLACE_FIRST, *self._place, body)

    async def _flush(self, length: int) -> None:
        body = await asyncio.to_thread(zstandard.compress, bytes(self._buffer[:length]), LEVEL)
        await self._pg.execute(ADD_CHUNK, *self._place, self._no, self.size, body)
        del self._buffer[:length]
        self._no += 1
        self.size += length


async def chunk(pg: Driver, stored: Stored, start: int, stop: int) -> bytes:
    """The text from `start`, up to the end of the chunk that holds it, or to `stop`; empty past the end."""
    row = await pg.fetchrow(READ, stored.scope, stored.id, start, CHUNK_BYTES, stop)
    if row is None:
        return b""
    text = zstandard.decompress(row["body"])
    return text[start - row["starts_at"] : stop - row["starts_at"]]


async def text(pg: Driver, stored: Stored) -> AsyncIterator[bytes]:
    """The whole text, a chunk at a time. Raises TextGone."""
    at = 0
    while at < stored.size:
        piece = await chunk(pg, stored, at, stored.size)
        if not piece:
            raise TextGone(f"of {stored.hash} the text ends at byte {at} of {stored.size}")
        yield piece
        at += len(piece)
