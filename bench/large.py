"""Scopes of a million ops, filled once for all rows that need one."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass

from bench.corpus import Author, Kind, chat, keyed
from bench.wire import Connection, connections
from bench.world import World, opened_scope, pushes

KINDS: dict[str, Kind] = {"chat": chat, "keyed": keyed}
#: Devices that take turns to fill a scope, so many ops at a time.
DEVICES, AT_ONCE = 4, 5_000


@dataclass(frozen=True, slots=True)
class Large:
    """A large scope, and the devices that go on writing in it."""

    scope: str
    kind: Kind
    authors: list[Author]


async def large(world: World, kind: str) -> Large:
    """The scope of this kind of ops, filled if it is not yet."""
    if kind not in world.filled:
        authors = [Author(f"device-{i}", seed=100 + i) for i in range(DEVICES)]
        async with connections(world.server.address, 1) as (connection,):
            scope = await opened_scope(world, connection, f"large_{kind}", *(author.device for author in authors))
            world.filled[kind] = Large(scope, KINDS[kind], authors)
            await _fill(world, connection, world.filled[kind])
        for settling in ("set statement_timeout = 0", "vacuum (analyze) op, record", "checkpoint"):
            await world.pg.execute(settling)
    found: Large = world.filled[kind]
    return found


async def _fill(world: World, connection: Connection, filling: Large) -> None:
    """Write the next body while nothing is timed; say how far it is."""
    for number, (device, body) in enumerate(_turns(filling, world.size.large), 1):
        for request in pushes(world, filling.scope, device, [body]):
            await connection.ask(request)
        if number % 20 == 0:
            print(f"{filling.scope}: {number * AT_ONCE:,} ops", file=sys.stderr)


def _turns(filling: Large, ops: int) -> Iterator[tuple[str, bytes]]:
    for number in range(ops // AT_ONCE):
        author = filling.authors[number % DEVICES]
        yield author.device, next(author.bodies(filling.kind, 1, AT_ONCE))
