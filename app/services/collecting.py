"""Garbage collection: ops that every active device has, and a checkpoint covers, are dropped (car-sync.md §11.8).

What still wins stays as a record; of event streams the op's record stays as a base row.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.services.access import Caller, still_known
from app.services.making_checkpoints import make_at_head
from app.sql import checkpoints, devices, gc, scopes
from app.sql.transactions import begun, driver, writing
from foldpoint.frontier import dominates, join
from foldpoint.relay import stable_frontier

#: Ops dropped in one transaction under the scope's lock.
STEP = 2_000


class Target(NamedTuple):
    """Up to which seq a device's ops may go, and where its floor is now."""

    device: int
    device_id: str
    floor: int
    upto: int


async def collect(engine: AsyncEngine, scope: int, caller: Caller | None = None) -> dict[str, int]:
    """Drop what may be dropped; how many ops of which device. Coverage is that of stored checkpoints.

    Where no single stored checkpoint covers every floor, one is made at the head first: a bootstrap can use
    one checkpoint only.
    """
    if not await _pinned(engine, scope):
        await make_at_head(engine, scope)
        await _pinned(engine, scope)
    dropped: Counter[str] = Counter()
    while True:
        async with writing(engine) as connection:
            step = await _step(connection, scope)
            if caller is not None:
                await still_known(await driver(connection), caller)
        if step is None:
            return dict(sorted(dropped.items()))
        dropped[step[0]] += step[1]


async def is_covered(engine: AsyncEngine, scope: int) -> bool:
    """Whether stored checkpoints cover all that the roster lets go, so that `collect` will not stop short of it."""
    async with writing(engine) as connection:
        pg = await begun(connection)
        heads = {no: chain.head.seq for no, chain in (await devices.chains(pg, scope)).items() if chain.head}
        covered = await checkpoints.coverage(pg, scope)
        allowed = await _targets(connection, scope, heads)
    return dominates(covered, {target.device: target.upto for target in allowed})


async def _pinned(engine: AsyncEngine, scope: int) -> bool:
    async with writing(engine) as connection:
        return await _pin(connection, scope, await _covered_targets(connection, scope))


async def _covered_targets(connection: AsyncConnection, scope: int) -> list[Target]:
    """What may go now, judged under the scope's lock."""
    pg = await begun(connection)
    await scopes.hold(pg, scope)
    return await _targets(connection, scope, await checkpoints.coverage(pg, scope))


async def _targets(connection: AsyncConnection, scope: int, covered: Mapping[int, int]) -> list[Target]:
    pg = await driver(connection)
    stable = stable_frontier((await devices.roster(connection, scope)).values())
    if stable is None:
        return []
    targets = []
    for no, chain in (await devices.chains(pg, scope)).items():
        assert chain.device_id is not None
        if no in covered:
            upto = await gc.droppable(pg, scope, no, chain.device_id, covered[no], stable)
            if upto is not None:
                targets.append(Target(no, chain.device_id, chain.dropped_below, upto))
    return targets


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
    frontiers = await checkpoints.frontiers(pg, scope)
    latest = await checkpoints.latest(pg, scope)
    needed = floors if latest is None else join(floors, await checkpoints.seqs(pg, scope, latest.id))
    able = [checkpoint for checkpoint, frontier in frontiers.items() if dominates(frontier, needed)]
    if able:
        await checkpoints.point(pg, scope, base=max(able), latest=max(able))
    return bool(able)


async def _step(connection: AsyncConnection, scope: int) -> tuple[str, int] | None:
    """Drop a bounded part of what may go at this moment; None when nothing is left."""
    targets = await _covered_targets(connection, scope)
    if not targets or not await _pin(connection, scope, targets):
        return None
    target = targets[0]
    upto = min(target.upto, target.floor + STEP - 1)
    return target.device_id, await gc.drop(await driver(connection), scope, target.device, upto)
