"""Retention, where an admin set a policy: base rows are trimmed, and a trimmed base checkpoint is made (server.md §5).

What is above the floor is not touched, as in the crate's compaction plan (car-sync.md §10.5). A run that a crash
cut short goes on where it stopped, with the policy and the time it began with.
"""

from dataclasses import dataclass

import orjson
from sqlalchemy.ext.asyncio import AsyncEngine

from app.services.access import Caller, still_known
from app.services.checkpoints.keeping_checkpoints import sweep
from app.services.checkpoints.making_checkpoints import write_at_head
from app.services.collection.trimming import trim_step
from app.sql import checkpoints, scopes, trims
from app.sql.keys import raw_op_id
from app.sql.transactions import Driver, begun, exclusive, reading
from app.sql.trims import Trim
from foldpoint.retention import Fact, doomed, fact_of, read_policy
from foldpoint.surfaces import SURFACES, Surface, Tier

#: Records trimmed in one transaction under the scope's lock.
STEP = 500
LOGS = [surface for surface in SURFACES if surface.tier is Tier.GROW_ONLY]
Facts = dict[Surface, list[Fact]]
#: What goes, by log: slots and raw op ids.
Slots = dict[Surface, list[tuple[bytes, bytes]]]


@dataclass(frozen=True, slots=True)
class Retaining:
    """Retention of one scope, for a caller whose token must stand while records are trimmed."""

    engine: AsyncEngine
    scope: int
    caller: Caller | None = None

    async def run(self, as_of_ms: int | None = None) -> Trim | None:
        """Finish what was cut short, or apply the policy to what is below the floor; None if nothing was to do.

        `as_of_ms` is what ages count from; by default the highest timestamp of the records below the floor.
        """
        return await self._run(as_of_ms) if await self._is_wanted() else None

    async def finish(self) -> Trim | None:
        """Finish what was cut short, if anything was."""
        return await self._run(None) if await self._is_wanted(begun_only=True) else None

    async def _is_wanted(self, *, begun_only: bool = False) -> bool:
        async with reading(self.engine) as connection:
            pg = await begun(connection)
            if await trims.unfinished(pg, self.scope) is not None:
                return True
            return not begun_only and await scopes.retention(pg, self.scope) is not None

    async def _run(self, as_of_ms: int | None) -> Trim | None:
        async with exclusive(self.engine) as alone:
            await scopes.work_alone(alone, self.scope)
            run = await self._begun(as_of_ms)
            if run is None:
                return None
            trim, slots = run
            await self._steps(trim, slots)
            checkpoint = await write_at_head(self.engine, alone, self.scope)
            await checkpoints.point(alone, self.scope, base=checkpoint, latest=checkpoint)
            await checkpoints.keep_only(alone, self.scope, checkpoint)
            await trims.finish(alone, self.scope, trim.no)
            await self._stand(alone)
        await sweep(self.engine, self.scope)
        async with exclusive(self.engine) as pg:
            return await trims.last(pg, self.scope)

    async def _begun(self, as_of_ms: int | None) -> tuple[Trim, Slots] | None:
        """The run that is under way, or a new one if the policy set now would trim anything; and what it trims."""
        async with reading(self.engine) as connection:
            pg = await begun(connection)
            unfinished = await trims.unfinished(pg, self.scope)
            text = await scopes.retention(pg, self.scope) if unfinished is None else unfinished.policy
            if text is None:
                return None
            facts = await self._facts(pg)
        if unfinished is not None:
            return unfinished, _doomed(facts, text, unfinished.as_of_ms)
        newest = max((fact.at or 0 for found in facts.values() for fact in found), default=0)
        at = newest if as_of_ms is None else as_of_ms
        slots = _doomed(facts, text, at)
        if not any(slots.values()):
            return None
        async with exclusive(self.engine) as pg:
            await self._stand(pg)
            return await trims.begin(pg, self.scope, text, at), slots

    async def _steps(self, trim: Trim, slots: Slots) -> None:
        for surface, found in slots.items():
            for at in range(0, len(found), STEP):
                async with exclusive(self.engine) as pg:
                    await trim_step(pg, self.scope, trim.no, surface, found[at : at + STEP])
                    await self._stand(pg)

    async def _facts(self, pg: Driver) -> Facts:
        """What a rule asks of each base row, by log; the key is its slot and raw op id."""
        facts: Facts = {}
        for surface in LOGS:
            facts[surface] = []
            async for row in trims.base_rows(pg, self.scope, surface):
                fact = fact_of((row.slot, raw_op_id(row.record.op_id)), row.record)
                if fact is not None:
                    facts[surface].append(fact)
        return facts

    async def _stand(self, pg: Driver) -> None:
        if self.caller is not None:
            await still_known(pg, self.caller)


def _doomed(facts: Facts, text: str, as_of_ms: int) -> Slots:
    policy = read_policy(orjson.loads(text))
    return {surface: doomed(found, policy.rule(surface.name), as_of_ms) for surface, found in facts.items()}
