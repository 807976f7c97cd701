"""What a server process does unasked: checkpoints that are due, and garbage collection where an interval is set."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count

from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from app.services.making_checkpoints import make_if_due
from app.services.upkeep import collect_and_retain
from app.settings import Settings
from app.sql import making, scopes
from app.sql.transactions import exclusive

log = logging.getLogger("foldpoint")

#: Seconds between two looks for scopes whose checkpoint is due.
LOOK_S = 2


@dataclass(slots=True)
class Background:
    """The tasks of one process. Processes may run them side by side: each piece of work is judged under a lock."""

    engine: AsyncEngine
    whole: asyncio.Semaphore
    settings: Settings
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self) -> None:
        if self.settings.checkpoint_every:
            self.tasks.append(asyncio.create_task(_repeat(self._checkpoints, LOOK_S)))
        if self.settings.gc_interval_s:
            self.tasks.append(asyncio.create_task(_repeat(self._collect, self.settings.gc_interval_s)))

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _checkpoints(self) -> None:
        async with exclusive(self.engine) as pg:
            due = await making.due(pg, self.settings.checkpoint_every)
        for scope in due:
            async with self.whole:
                await make_if_due(self.engine, scope, self.settings.checkpoint_every)

    async def _collect(self) -> None:
        for scope, _ in await scopes.listed(self.engine):
            async with self.whole:
                await collect_and_retain(self.engine, scope)


async def _repeat(work: Callable[[], Awaitable[None]], every_s: float) -> None:
    for _ in count():
        await asyncio.sleep(every_s)
        try:
            await work()
        except (DBAPIError, OSError) as error:
            log.warning("background work waits for the database: %s", type(error).__name__)
        except Exception:
            log.exception("background work failed, and is tried again")
