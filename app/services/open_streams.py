"""Answers that are sent piece by piece, and end soon after their token is revoked (server.md §9)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sqlalchemy.ext.asyncio import AsyncEngine

from app.away import DATABASE_ERRORS
from app.problems import BrokenOff
from app.services.access import Caller
from app.sql.access import standing
from app.sql.transactions import connected, driver

#: Between two looks at the tokens. The stream of a revoked one ends within 5 s, also if a look fails.
EVERY_S = 1.5
#: Tokens that could not be looked at for so long count as revoked.
UNKNOWN_S = 3.0


class Revoked(BrokenOff):
    """The token was revoked while its answer was sent."""


@dataclass(slots=True)
class OpenStreams:
    """The streams of one process: one statement now and then asks for the tokens of all, while there are any."""

    engine: AsyncEngine
    open: dict[asyncio.Timeout, bytes] = field(default_factory=dict)
    watching: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def of(self, caller: Caller) -> AsyncIterator[None]:
        """Let a stream go on while its caller's token stands, whether or not the client reads. Raises Revoked."""
        if caller.root:
            yield
            return
        try:
            async with asyncio.timeout(None) as end:
                self.open[end] = caller.token_hash
                if self.watching is None or self.watching.done():
                    self.watching = asyncio.create_task(self._watch())
                try:
                    yield
                finally:
                    self.open.pop(end, None)
        except TimeoutError as error:
            if end.expired():
                raise Revoked("the token was revoked") from error
            raise

    async def stop(self) -> None:
        if self.watching is not None:
            self.watching.cancel()

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        looked = loop.time()
        while self.open:
            await asyncio.sleep(EVERY_S)
            asked = dict(self.open)
            try:
                known = await self._standing(set(asked.values())) if asked else set()
                looked = loop.time()
            except DATABASE_ERRORS:
                if loop.time() - looked < UNKNOWN_S:
                    continue
                known = set()
            for end, token_hash in asked.items():
                if token_hash not in known and self.open.pop(end, None) is not None:
                    end.reschedule(loop.time())

    async def _standing(self, hashes: set[bytes]) -> set[bytes]:
        async with asyncio.timeout(EVERY_S), connected(self.engine) as connection:
            return await standing(await driver(connection), hashes)
