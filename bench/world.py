"""What all rows share: one database, one server, one bare endpoint, the crate's programs, and how much is measured."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import asyncpg

from app.database import SESSION, create_engine
from app.migrate import upgrade
from app.services.tokens import issue
from app.sql.tokens import NewToken
from bench.crates import Crates
from bench.figures import Sample
from bench.servers import BARE, FOLDPOINT, Served, serving
from bench.wire import Connection, ask_all


class Size(NamedTuple):
    """How much of everything."""

    name: str
    rounds: int
    #: P1: batches of 1,000 ops per kind and round.
    batches: int
    #: P2, P3: ops of the real device client, many and few.
    device_ops: tuple[int, int]
    #: P4, P11: turns of the long conversation, records of the long run, and requests per round.
    turns: int
    tails: int
    #: P6: look-ups of each of 32 connections.
    lookups: int
    #: P7, P9: ops of the large scopes, and pushes per round into each.
    large: int
    large_pushes: int
    #: P8: ops under the state hash.
    hashed: int
    #: P10: batches on each connection, and single-op pushes of each device.
    lane_batches: int
    singles: int
    #: Peers: calls of 256 messages per round.
    peer_batches: int


FULL = Size("full", 5, 20, (100_000, 10_000), 100_000, 200, 100, 1_000_000, 10, 100_000, 12, 100, 20)
QUICK = Size("quick", 3, 6, (20_000, 5_000), 20_000, 100, 40, 50_000, 6, 10_000, 5, 40, 4)
SMOKE = Size("smoke", 1, 2, (2_000, 1_000), 2_000, 20, 5, 5_000, 2, 1_000, 2, 5, 1)


@dataclass(slots=True)
class World:
    database_url: str
    size: Size
    crates: Crates
    token: str
    pg: Any
    server: Served
    bare: Served
    #: Large scopes by what is in them, filled once (`bench.large`).
    filled: dict[str, Any] = field(default_factory=dict)
    _scopes: int = 0

    def scope(self, purpose: str) -> str:
        """A scope that nothing was pushed to yet."""
        self._scopes += 1
        return f"bench_{purpose}_{self._scopes}"

    @property
    def environment(self) -> dict[str, str]:
        """What a further server on the same database needs."""
        return {"FOLDPOINT_DATABASE_URL": self.database_url}

    async def connect(self) -> Any:
        """asyncpg's own connection, with the session settings that the server uses."""
        return await connect(self.database_url)


#: A row prepares what it needs and yields nothing once; then it yields one sample of its figures per round.
Row = Callable[[World], AsyncGenerator[Sample, None]]


async def connect(url: str) -> Any:
    return await asyncpg.connect(url, server_settings=SESSION)


async def make_world(url: str, size: Size, opened: AsyncExitStack) -> World:
    """Start everything on a database that is ours alone."""
    environment = {"FOLDPOINT_DATABASE_URL": url}
    await upgrade(url)
    token = await _admin_token(url)
    server = await opened.enter_async_context(serving(FOLDPOINT, token, **environment))
    bare = await opened.enter_async_context(serving(BARE, token, **environment))
    pg = await connect(url)
    opened.push_async_callback(pg.close)
    return World(url, size, Crates(), token, pg, server, bare)


async def _admin_token(url: str) -> str:
    """A token as users have it, in the database; the one of the settings would be found without asking it."""
    engine = create_engine(url, pool_size=1)
    try:
        async with engine.begin() as connection:
            return (await issue(connection, NewToken("admin")))[1]
    finally:
        await engine.dispose()


def pushes(world: World, scope: str, device: str, bodies: Iterable[bytes]) -> list[bytes]:
    """The requests that push these bodies, ready to be sent."""
    return [world.server.address.post(f"/sync/{scope}/devices/{device}/ops", body) for body in bodies]


async def opened_scope(world: World, connection: Connection, purpose: str, *devices: str) -> str:
    """A scope that exists and knows these devices, so that a first push does nothing but push."""
    scope = world.scope(purpose)
    for device in devices:
        await ask_all(connection, pushes(world, scope, device, [b"[]"]))
    return scope


async def seconds(work: Awaitable[Any]) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began
