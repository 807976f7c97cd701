"""P8: the hash of a whole state. P9: a checkpoint of a million records while devices push."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator
from itertools import count
from math import ceil

import orjson

from bench import memory
from bench.corpus import Author, chat
from bench.figures import NotThere, Ratio, Sample
from bench.large import large
from bench.servers import FOLDPOINT, Served, serving
from bench.wire import Connection, Refused, ask_all, connections
from bench.world import World, opened_scope, pushes, seconds

MS = 1_000
#: As often as car-bench repeats itself; both sides give their best.
HASHES = 3

#: P9: what devices do meanwhile: small pushes with a pause between them.
MEANWHILE_OPS, PAUSE_SECONDS = 20, 0.02
#: Of fewer pushes a p99 says little, of more it says no more. A small checkpoint is made again until there are enough.
FEWEST, MOST = 100, 2_000


async def state_hash(world: World) -> AsyncGenerator[Sample, None]:
    """P8: the ops of car-bench, pushed here; each hash is asked for after one more op, over HTTP."""
    devices: dict[str, list[tuple[int, bytes]]] = defaultdict(list)
    for text in await world.crates.ops("mixed", world.size.hashed):
        op = orjson.loads(text)
        devices[op["device_id"]].append((op["seq"], text))
    async with connections(world.server.address, 1) as (connection,):
        scope = await opened_scope(world, connection, "hash", *devices, "laptop")
        for device, numbered in devices.items():
            body = b"[" + b",".join(text for _, text in sorted(numbered)) + b"]"
            await ask_all(connection, pushes(world, scope, device, [body]))
        request = world.server.address.get(f"/v1/scopes/{scope}/state/hash")
        ours = orjson.loads(await connection.ask(request))["state_hash"]
        assert (await world.crates.alone("state_hash", str(world.size.hashed)))["state_hash"] == ours
        changes = Author("laptop")
        yield {}
        for _ in count():
            took = []
            for change in pushes(world, scope, "laptop", list(changes.bodies(chat, HASHES, 1))):
                await connection.ask(change)
                took.append(await seconds(connection.ask(request)))
            alone = await world.crates.alone("state_hash", str(world.size.hashed))
            yield {"P8": Ratio(MS * min(took), MS * alone["seconds"])}


async def checkpoint(world: World) -> AsyncGenerator[Sample, None]:
    """P9: on a server of its own, whose memory nothing else has used."""
    scope = (await large(world, "keyed")).scope
    async with (
        serving(FOLDPOINT, world.token, **world.environment) as apart,
        connections(apart.address, 2) as (pushing, making),
    ):
        author = Author("meanwhile", seed=9, wall_ms=1_750_000_000_000)
        pusher = _Pusher(apart, scope, author, pushing)
        make = apart.address.post(f"/v1/scopes/{scope}/checkpoints")
        await _make(making, make)
        yield {}
        for _ in count():
            memory.forget_peak(apart.pid)
            with_it: list[float] = []
            while len(with_it) < FEWEST:
                made = asyncio.create_task(_make(making, make))
                with_it += await pusher.push_until(made)
                await made
            peak = memory.peak_mb(apart.pid)
            without = await pusher.push(len(with_it))
            yield {"P9a": Ratio(peak), "P9b": Ratio(MS * _p99(with_it), MS * _p99(without))}


async def _make(connection: Connection, request: bytes) -> None:
    """A checkpoint at the head. Raises NotThere on a server that makes none on demand."""
    try:
        await connection.ask(request)
    except Refused as refused:
        if refused.status in (404, 405):
            raise NotThere("POST /v1/scopes/{scope}/checkpoints is not there yet") from refused
        raise


class _Pusher:
    """A device that pushes a little now and then."""

    def __init__(self, server: Served, scope: str, author: Author, connection: Connection) -> None:
        self._server, self._scope, self._author, self._connection = server, scope, author, connection

    async def push_until(self, work: "asyncio.Task[None]") -> list[float]:
        """How long each push took until the work was done."""
        took: list[float] = []
        while not work.done() and len(took) < MOST:
            took += await self.push(1)
        return took

    async def push(self, times: int) -> list[float]:
        took = []
        for body in self._author.bodies(chat, times, MEANWHILE_OPS):
            request = self._server.address.post(f"/sync/{self._scope}/devices/{self._author.device}/ops", body)
            took.append(await seconds(self._connection.ask(request)))
            await asyncio.sleep(PAUSE_SECONDS)
        return took


def _p99(took: list[float]) -> float:
    return sorted(took)[ceil(len(took) * 0.99) - 1]
