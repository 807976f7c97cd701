"""What a server process does unasked: checkpoints that are due, unlocking that was cut short, keys to let go of, and
garbage collection where an interval is set."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from sqlalchemy.ext.asyncio import AsyncEngine

from app.away import DATABASE_ERRORS, unavailable
from app.services.checkpoints.making_checkpoints import make_if_due
from app.services.collection.retaining import Retaining
from app.services.collection.upkeep import collect_and_retain
from app.services.keys.unlocking import Unlocking
from app.services.slots import Slots
from app.settings import Settings
from app.sql import making, scope_keys, scopes, trims
from app.sql.transactions import exclusive

log = logging.getLogger("foldpoint")

#: Seconds between two looks for scopes whose checkpoint is due, or whose retention or unlocking was cut short.
LOOK_S = 2


@dataclass(slots=True)
class Background:
    """The tasks of one process. Processes may run them side by side: each piece of work is judged under a lock.

    It looks by the engine for quick work and works by the patient one.
    """

    engine: AsyncEngine
    patient: AsyncEngine
    whole: Slots
    settings: Settings
    unlocking: Unlocking
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self) -> None:
        self.tasks.append(asyncio.create_task(_repeat(self._look, LOOK_S)))
        if self.unlocking.vault.file is not None:
            self.tasks.append(asyncio.create_task(_repeat(self._unlock, LOOK_S)))
        if self.settings.gc_interval_s:
            self.tasks.append(asyncio.create_task(_repeat(self._collect, self.settings.gc_interval_s)))

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _look(self) -> None:
        every = self.settings.checkpoint_every
        async with exclusive(self.engine) as pg:
            cut_short = await trims.cut_short(pg)
            due = await making.due(pg, every) if every else []
        await self._each(cut_short, lambda scope: Retaining(self.patient, scope).finish())
        await self._each(due, lambda scope: make_if_due(self.patient, scope, every))

    async def _unlock(self) -> None:
        async with exclusive(self.engine) as pg:
            left = await scope_keys.unlocking(pg)
            await self.unlocking.vault.forget_changed(pg)
        await self._each(left, self.unlocking.resume)

    async def _collect(self) -> None:
        numbers = [number for number, _ in await scopes.listed(self.engine)]
        await self._each(numbers, lambda scope: collect_and_retain(self.patient, scope))

    async def _each(self, numbers: Iterable[int], work: Callable[[int], Awaitable[object]]) -> None:
        """Do a piece of work per scope; one that fails keeps none of the others from it."""
        for number in numbers:
            async with self.whole.take(number, None):
                await _tried(partial(work, number), f"scope {number}")


async def _repeat(work: Callable[[], Awaitable[object]], every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        await _tried(work, "looking for work")


async def _tried(work: Callable[[], Awaitable[object]], what: str) -> None:
    """Do it; what goes wrong is logged, and tried again another time."""
    try:
        await work()
    except DATABASE_ERRORS as error:
        if unavailable(error) is not None:
            log.warning("background work on %s waits for the database: %s", what, type(error).__name__)
        else:
            log.exception("background work failed: %s", what)
    except Exception:
        log.exception("background work failed: %s", what)
