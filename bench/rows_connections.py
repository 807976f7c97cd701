"""P10: pushes on several connections at once."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from itertools import count
from typing import Any

from bench.corpus import Author, chat
from bench.figures import Ratio, Sample
from bench.raw import RawTable
from bench.rows_push import BATCH
from bench.wire import Connection, ask_all, connections
from bench.world import World, opened_scope, pushes, seconds

DEVICES = 16


async def two_scopes(world: World) -> AsyncGenerator[Sample, None]:
    """P10a: batches of chat on one connection, and on two at once to two scopes."""
    bodies = list(Author("laptop").bodies(chat, world.size.lane_batches, BATCH))
    async with connections(world.server.address, 2) as opened:
        yield {}
        for number in count():
            alone, together = 0.0, 0.0
            for half in range(2):
                if (number + half) % 2:
                    alone = await _push_at_once(world, opened[:1], bodies)
                else:
                    together = await _push_at_once(world, opened, bodies)
            ops = len(bodies) * BATCH
            yield {"P10a": Ratio(2 * ops / together, ops / alone)}


async def _push_at_once(world: World, opened: Sequence[Connection], bodies: list[bytes]) -> float:
    """Each connection pushes these bodies to a scope of its own."""
    scopes = [await opened_scope(world, opened[0], "lane", "laptop") for _ in opened]
    work = [ask_all(each, pushes(world, scope, "laptop", bodies)) for each, scope in zip(opened, scopes, strict=True)]
    return await seconds(asyncio.gather(*work))


async def single_ops(world: World) -> AsyncGenerator[Sample, None]:
    """P10b, P10c: sixteen devices push op by op, into one scope and into one each; raw commits of single rows."""
    names = [f"device-{i}" for i in range(DEVICES)]
    bodies = {name: list(Author(name, seed=i).bodies(chat, world.size.singles, 1)) for i, name in enumerate(names)}
    table = await RawTable.make(world)
    pool = [await world.connect() for _ in names]
    try:
        async with connections(world.server.address, DEVICES) as opened:
            template = await opened_scope(world, opened[0], "single", *names)
            await _push_singly(world, opened, dict.fromkeys(names, template), bodies)
            rows = await table.rows_of(world, template)
            yield {}
            for number in count(1):
                one = await opened_scope(world, opened[0], "single", *names)
                own = {name: await opened_scope(world, opened[0], "single", name) for name in names}
                # Prepared anew: the timeout of a prepared statement runs on until it is used.
                statements = [await each.prepare(table.values) for each in pool]
                raw = await _commit_singly(table, statements, rows, -1_000_000 - number)
                in_one = await _push_singly(world, opened, dict.fromkeys(names, one), bodies)
                in_own = await _push_singly(world, opened, own, bodies)
                yield {
                    "P10b": Ratio(len(rows) / in_one, len(rows) / raw),
                    "P10c": Ratio(len(rows) / in_own, len(rows) / raw),
                }
    finally:
        for each in pool:
            await each.close()


async def _push_singly(
    world: World, opened: Sequence[Connection], scopes: dict[str, str], bodies: dict[str, list[bytes]]
) -> float:
    work = [
        ask_all(each, pushes(world, scopes[name], name, bodies[name]))
        for each, name in zip(opened, bodies, strict=True)
    ]
    return await seconds(asyncio.gather(*work))


async def _commit_singly(table: RawTable, statements: list[Any], rows: list[list[Any]], scope: int) -> float:
    """Each connection commits the rows of one device, one by one."""
    moved = table.in_scope(rows, scope)
    share = len(moved) // len(statements)

    async def commit(statement: Any, own: list[list[Any]]) -> None:
        for row in own:
            await statement.fetch(*row)

    work = [commit(statement, moved[i * share : (i + 1) * share]) for i, statement in enumerate(statements)]
    return await seconds(asyncio.gather(*work))
