"""One COPY that is fed part by part: PostgreSQL puts one part in while the next is made."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Self

from app.sql.transactions import Driver

#: The binary format: how it begins, how it ends, and what stands for the length of a null.
HEADER, TRAILER, NULL = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff", b"\xff\xff\xff\xff"


class Copying:
    """Rows in the binary format on their way into a table; nothing else may use the connection before `finish`.

    One part at most waits until the one before it is taken. Leaving it finishes it, whatever it is left for.
    """

    def __init__(self, pg: Driver, table: str, columns: Sequence[str]) -> None:
        self._waiting = HEADER
        self._put, self._taken = asyncio.Event(), asyncio.Event()
        self._put.set()
        copying = pg.copy_to_table(table, source=self._parts(), columns=columns, format="binary")
        self._copying = asyncio.ensure_future(copying)
        self._copying.add_done_callback(lambda _: self._taken.set())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.finish()

    async def add(self, part: bytes) -> None:
        """Raises what the copying ended in, if it has."""
        await self._taken.wait()
        if self._copying.done():
            await self._copying
        self._taken.clear()
        self._waiting = part
        self._put.set()
        await asyncio.sleep(0)

    async def finish(self) -> None:
        """Wait until everything is in."""
        if not self._copying.done():
            await self.add(TRAILER)
        await self._copying

    async def _parts(self) -> AsyncIterator[bytes]:
        part = b""
        while part is not TRAILER:
            await self._put.wait()
            self._put.clear()
            part = self._waiting
            self._taken.set()
            yield part
