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
EVERY_S = 1.0
#: A look that takes longer has failed, and is tried again soon.
LOOK_S = 1.0
AGAIN_S = 0.1
#: Tokens that could not be looked at for so long count as revoked.
UNKNOWN_S = 4.6


class Revoked(BrokenOff):
    """The token was revoked while its answer was sent."""

    def __init__(self) -> None:
        super().__init__("the token was revoked")


class Unchecked(BrokenOff):
    """The database did not say for too long whether the token still stands."""

    def __init__(self) -> None:
        super().__init__("the token could not be checked")


@dataclass(slots=True, eq=False)
class _Stream:
    """`known_at` is when its token was known to stand, on the loop's clock; `why` it was broken off, if it was."""

    token_hash: bytes
    end: asyncio.Timeout
    known_at: float
    why: type[Revoked] | type[Unchecked] | None = None

    @property
    def unknown_at(self) -> float:
        return self.known_at + UNKNOWN_S


@dataclass(slots=True)
class OpenStreams:
    """The streams of one process: one statement now and then asks for the tokens of all, while there are any.

    The engine is for that alone: nothing else may keep a look waiting.
    """

    engine: AsyncEngine
    open: set[_Stream] = field(default_factory=set)
    watching: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def of(self, caller: Caller) -> AsyncIterator[None]:
        """Let a stream go on while its caller's token stands, whether or not the client reads.

        Raises Revoked and Unchecked.
        """
        if caller.root:
            yield
            return
        stream = _Stream(caller.token_hash, asyncio.timeout(None), asyncio.get_running_loop().time())
        try:
            async with stream.end:
                self.open.add(stream)
                if self.watching is None or self.watching.done():
                    self.watching = asyncio.create_task(self._watch())
                try:
                    yield
                finally:
                    self.open.discard(stream)
        except TimeoutError as error:
            if stream.why is not None and stream.end.expired():
                raise stream.why() from error
            raise

    async def stop(self) -> None:
        if self.watching is not None:
            self.watching.cancel()

    async def _watch(self) -> None:
        pause = EVERY_S
        while self.open:
            await asyncio.sleep(pause)
            pause = EVERY_S if await self._look(self.open.copy()) else AGAIN_S

    async def _look(self, streams: set[_Stream]) -> bool:
        """Break off the streams of revoked tokens, or of those unknown for too long; whether the look succeeded."""
        time = asyncio.get_running_loop().time
        began = time()
        until = min([began + LOOK_S, *(stream.unknown_at for stream in streams)])
        try:
            async with asyncio.timeout_at(until), connected(self.engine) as connection:
                known = await standing(await driver(connection), {stream.token_hash for stream in streams})
        except DATABASE_ERRORS:
            self._break_off({stream for stream in streams if stream.unknown_at <= time()}, Unchecked)
            return False
        for stream in streams:
            stream.known_at = began
        self._break_off({stream for stream in streams if stream.token_hash not in known}, Revoked)
        return True

    def _break_off(self, streams: set[_Stream], why: type[Revoked] | type[Unchecked]) -> None:
        for stream in streams & self.open:
            self.open.discard(stream)
            stream.why = why
            stream.end.reschedule(asyncio.get_running_loop().time())
