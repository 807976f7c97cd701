"""P2, P3: the device client that CAR ships, against this server and against the crate's own loopback server."""

import asyncio
import http.client
import time
from collections.abc import AsyncGenerator
from itertools import count

from bench import memory
from bench.figures import Ratio, Sample
from bench.servers import FOLDPOINT, Served, serving
from bench.world import World

#: A reader that stops for a while shows whether the server holds what it may not send yet.
PAUSE_AFTER, PAUSE_SECONDS = 1024 * 1024, 0.5
#: The device of `car-client speed` wrote them; anybody may pull them.
READER = "bench-reader"


async def speed(world: World) -> AsyncGenerator[Sample, None]:
    """Push in batches of 1,000, then pull all in one answer; the loopback does the same in its own process."""
    many, few = world.size.device_ops
    async with serving(FOLDPOINT, world.token, **world.environment) as apart:
        await world.crates.speed(1_000, **_against(world, world.scope("warm")))
        await asyncio.to_thread(_growth_of_pull, apart, await _pushed(world, few))
        yield {}
        for _ in count():
            scope = world.scope("device")
            ours = await world.crates.speed(many, **_against(world, scope))
            loopback = await world.crates.speed(many, SYNC_LOOPBACK="1")
            ours_few = await world.crates.speed(few, **_against(world, world.scope("device")))
            loopback_few = await world.crates.speed(few, SYNC_LOOPBACK="1")
            growth = await asyncio.to_thread(_growth_of_pull, apart, scope)
            yield {
                "P2a": Ratio(ours["push_ops_s"], loopback["push_ops_s"]),
                "P2b": Ratio(ours["last_batches_ms"], ours["first_batches_ms"]),
                "P2c": Ratio(ours_few["push_ops_s"], loopback_few["push_ops_s"]),
                "P3a": Ratio(ours["pull_ops_s"], loopback["pull_ops_s"]),
                "P3b": Ratio(growth),
            }


def _against(world: World, scope: str) -> dict[str, str]:
    address = world.server.address
    base = f"http://{address.host}:{address.port}/sync"
    return {"SYNC_BASE": base, "SYNC_TOKEN": world.token, "SYNC_SCOPE": scope}


async def _pushed(world: World, ops: int) -> str:
    scope = world.scope("device")
    await world.crates.speed(ops, **_against(world, scope))
    return scope


def _growth_of_pull(server: Served, scope: str) -> float:
    """By how many MB a server's memory peaks above what it held before everything was pulled from it."""
    memory.forget_peak(server.pid)
    before = memory.resident_mb(server.pid)
    connection = http.client.HTTPConnection(server.address.host, server.address.port, timeout=300)
    headers = {"Authorization": f"Bearer {server.address.token}"}
    connection.request("POST", f"/sync/{scope}/devices/{READER}/pull", b"{}", headers)
    answer = connection.getresponse()
    assert answer.status == 200, answer.status
    answer.read(PAUSE_AFTER)
    time.sleep(PAUSE_SECONDS)
    while answer.read(PAUSE_AFTER):
        pass
    connection.close()
    return memory.peak_mb(server.pid) - before
