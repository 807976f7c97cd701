"""How much long work a process does at once, so that nobody waits for ever and no tenant takes all of it."""

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from app.problems import Problem

#: A client that waited so long is told to come again: real devices give up after 30 s.
WAIT_S = 20


class Slots:
    """So many pieces of work at once, and of one tenant at most `each`."""

    def __init__(self, slots: int, each: int) -> None:
        self._free = asyncio.Semaphore(slots)
        self._each = each
        self._own: WeakValueDictionary[Hashable, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def take(self, tenant: Hashable, wait_s: float | None = WAIT_S) -> AsyncIterator[None]:
        """Wait for a slot, None as long as it takes, and have it for the block. Raises unavailable."""
        own = self._own.setdefault(tenant, asyncio.Semaphore(self._each))
        try:
            async with asyncio.timeout(wait_s) as waiting:
                await own.acquire()
                try:
                    await self._free.acquire()
                except BaseException:
                    own.release()
                    raise
        except TimeoutError as error:
            if not waiting.expired():
                raise
            raise Problem("unavailable", "too much long work is going on") from error
        try:
            yield
        finally:
            self._free.release()
            own.release()
