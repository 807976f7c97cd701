"""Garbage collection: ops that every active device has, and a checkpoint covers, are dropped (car-sync.md §11.8).

What still wins stays as a record; of event streams the op's record stays as a base row.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.services.access import Caller, still_known
from app.services.checkpoints.making_checkpoints import make_at_head
from app.sql import checkpoints, devices, gc, scopes
from app.sql.transactions import begun, driver, reading, writing
from foldpoint.frontier import dominates, join
from foldpoint.hlc import Hlc
from foldpoint.hosted import is_hosted
from foldpoint.relay import Chain, stable_frontier

#: Ops dropped in one transaction under the scope's lock.
STEP = 2_000


class Target(NamedTuple):
    """Up to which seq a device's ops may go, and where its floor is now."""

    device: int
    device_id: str
    floor: int
    upto: int


@dataclass(frozen=True, slots=True)
class Collecting:
    """One collection of a scope, for a caller whose token must stand while ops are dropped.

    `by_admin`, a scope of hosted chains only is stable up to its head: nobody there can acknowledge (server.md §5).
    """

    engine: AsyncEngine
    scope: int
    caller: Caller | None = None
    by_admin: bool = False

    async def run(self) -> dict[str, int]:
        """Drop what may be dropped; how many ops of which device. Coverage is that of stored checkpoints.

        Where no single stored checkpoint covers every floor, one is made at the head first: a bootstrap can use
        one checkpoint only.
        """
        if not await self._pinned():
            await make_at_head(self.engine, self.scope, self.caller)
            await self._pinned()
        dropped: Counter[str] = Counter()
        while True:
            async with writing(self.engine) as connection:
                step = await self._step(connection)
                if self.caller is not None:
                    await still_known(await driver(connection), self.caller)
            if step is None:
                return dict(sorted(dropped.items()))
            dropped[step[0]] += step[1]

    async def is_covered(self) -> bool:
        """Whether stored checkpoints cover all that may go, so that `run` will not stop short of it."""
        async with reading(self.engine) as connection:
            pg = await begun(connection)
            chains = (await devices.chains(pg, self.scope)).items()
            covered = await checkpoints.coverage(pg, self.scope)
            allowed = await self._targets(connection, {no: chain.head.seq for no, chain in chains if chain.head})
        return dominates(covered, {target.device: target.upto for target in allowed})

    async def _pinned(self) -> bool:
        async with writing(self.engine) as connection:
            return await _pin(connection, self.scope, await self._covered_targets(connection))

    async def _covered_targets(self, connection: AsyncConnection) -> list[Target]:
        """What may go now, judged under the scope's lock."""
        pg = await begun(connection)
        if await scopes.hold(pg, self.scope) != "plain":
            return []
        return await self._targets(connection, await checkpoints.coverage(pg, self.scope))

    async def _targets(self, connection: AsyncConnection, covered: Mapping[int, int]) -> list[Target]:
        pg, targets = await driver(connection), []
        chains = await devices.chains(pg, self.scope)
        stable = await self._stable(connection, chains.values())
        for no, chain in chains.items():
            if stable is not None and no in covered:
                upto = await gc.droppable(pg, self.scope, no, chain, covered[no], stable)
                if upto is not None:
                    assert chain.device_id is not None
                    targets.append(Target(no, chain.device_id, chain.dropped_below, upto))
        return targets

    async def _stable(self, connection: AsyncConnection, chains: Collection[Chain]) -> Hlc | None:
        roster = await devices.roster(connection, self.scope)
        if self.by_admin and not roster and all(is_hosted(chain.device_id or "") for chain in chains):
            return max((chain.head.hlc for chain in chains if chain.head), default=None)
        return stable_frontier(roster.values())

    async def _step(self, connection: AsyncConnection) -> tuple[str, int] | None:
        """Drop a bounded part of what may go at this moment; None when nothing is left."""
        targets = await self._covered_targets(connection)
        if not targets or not await _pin(connection, self.scope, targets):
            return None
        target = targets[0]
        upto = min(target.upto, target.floor + STEP - 1)
        return target.device_id, await gc.drop(await driver(connection), self.scope, target.device, upto)


async def _pin(connection: AsyncConnection, scope: int, targets: Sequence[Target]) -> bool:
    """Point base and latest at one checkpoint that covers every floor, as it is and as it will be.

    False if none is stored that does, and dominates the latest: devices hold that one already, and a fresh one
    bootstraps from it.
    """
    if not targets:
        return True
    pg = await driver(connection)
    chains = (await devices.chains(pg, scope)).items()
    floors = {no: chain.dropped_below - 1 for no, chain in chains if chain.dropped_below}
    floors.update((target.device, target.upto) for target in targets)
    frontiers = await checkpoints.answering(pg, scope)
    latest = await checkpoints.latest(pg, scope)
    needed = floors if latest is None else join(floors, await checkpoints.seqs(pg, scope, latest.id))
    able = [checkpoint for checkpoint, frontier in frontiers.items() if dominates(frontier, needed)]
    if able:
        await checkpoints.point(pg, scope, base=max(able), latest=max(able))
    return bool(able)
