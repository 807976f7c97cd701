"""P1: pushes over HTTP beside the same rows put straight into a table."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from itertools import count
from typing import Any

from bench.corpus import Author, Kind, chat, keyed, mixed
from bench.figures import Ratio, Sample
from bench.raw import RawTable, columns
from bench.wire import Connection, ask_all, connections
from bench.world import World, opened_scope, pushes, seconds

BATCH = 1_000
KINDS: dict[str, Kind] = {"P1a": chat, "P1b": mixed, "P1c": keyed}


async def whole_batches(world: World) -> AsyncGenerator[Sample, None]:
    """P1: batch by batch in turns, ours first in every other one."""
    table = await RawTable.make(world)
    insert = await world.pg.prepare(table.unnest)
    async with connections(world.server.address, 1) as (connection,):
        made = {name: await _Batches.make(world, table, connection, kind) for name, kind in KINDS.items()}
        yield {}
        for number in count(1):
            yield {name: await batches.measure(world, connection, insert, number) for name, batches in made.items()}


@dataclass(frozen=True, slots=True)
class _Batches:
    """The bodies of one kind, and the rows that the server makes of them."""

    bodies: list[bytes]
    table: RawTable
    rows: list[list[Any]]
    place: int

    @classmethod
    async def make(cls, world: World, table: RawTable, connection: Connection, kind: Kind) -> "_Batches":
        bodies = list(Author("laptop", seed=len(kind.__name__)).bodies(kind, world.size.batches, BATCH))
        scope = world.scope(kind.__name__)
        await ask_all(connection, pushes(world, scope, "laptop", bodies))
        return cls(bodies, table, await table.rows_of(world, scope), list(KINDS.values()).index(kind))

    async def measure(self, world: World, connection: Connection, insert: Any, number: int) -> Ratio:
        scope = await opened_scope(world, connection, "push", "laptop")
        requests = pushes(world, scope, "laptop", self.bodies)
        rows = self.table.in_scope(self.rows, -(number * len(KINDS) + self.place))
        inserts = [columns(rows[start : start + BATCH]) for start in range(0, len(rows), BATCH)]
        ours = theirs = 0.0
        for i, (push, batch) in enumerate(zip(requests, inserts, strict=True)):
            if i % 2:
                theirs += await seconds(insert.fetch(*batch))
                ours += await seconds(connection.ask(push))
            else:
                ours += await seconds(connection.ask(push))
                theirs += await seconds(insert.fetch(*batch))
        return Ratio(len(rows) / ours, len(rows) / theirs)
