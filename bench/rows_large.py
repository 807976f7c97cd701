"""P7: a push into a scope of a million ops beside one into an empty scope."""

from collections.abc import AsyncGenerator
from itertools import count
from statistics import median

from bench.corpus import Author
from bench.figures import Ratio, Sample
from bench.large import Large, large
from bench.rows_push import BATCH
from bench.wire import Connection, connections
from bench.world import World, opened_scope, pushes, seconds

MS = 1_000


async def into_large_scopes(world: World) -> AsyncGenerator[Sample, None]:
    """Push by push in turns; medians of a round."""
    scopes = {"P7a": await large(world, "chat"), "P7b": await large(world, "keyed")}
    async with connections(world.server.address, 1) as (connection,):
        yield {}
        for _ in count():
            yield {name: await _measure(world, connection, scope) for name, scope in scopes.items()}


async def _measure(world: World, connection: Connection, large_: Large) -> Ratio:
    author = large_.authors[0]
    newcomer = list(Author("newcomer", seed=7).bodies(large_.kind, 1, BATCH))
    full: list[float] = []
    empty: list[float] = []
    for body in list(author.bodies(large_.kind, world.size.large_pushes, BATCH)):
        fresh = await opened_scope(world, connection, "empty", "newcomer")
        (into_fresh,) = pushes(world, fresh, "newcomer", newcomer)
        (into_full,) = pushes(world, large_.scope, author.device, [body])
        full.append(await seconds(connection.ask(into_full)))
        empty.append(await seconds(connection.ask(into_fresh)))
    return Ratio(MS * median(full), MS * median(empty))
