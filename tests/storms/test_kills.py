"""R22, R23: kill -9 in the middle of pushes. What was acknowledged is there once, and devices go on by retrying.

STORM_ROUNDS makes a long campaign of it.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from random import Random  # noqa: TID251 - the type of `dice`

import asyncpg
import pytest

from app.embedded import EmbeddedPostgres
from foldpoint.op import Op
from tests.fixtures.server import running_server
from tests.storms.devices import Device, devices, written
from tests.storms.fleet import Fleet
from tests.storms.readers import Pager, Puller
from tests.storms.stored import check, connected, stored_ops

ROUNDS = int(os.environ.get("STORM_ROUNDS", "5"))
DEVICES = 8
#: Pushes between two kills; the kill comes after a random part of them.
PUSHES = 60


class Storm:
    """Devices that push as fast as they may, and a bell that rings when some of their pushes are acknowledged."""

    def __init__(self, fleet: Fleet, scope: str, dice: Random, crew: list[Device]) -> None:
        self.fleet, self.scope, self.dice, self.crew = fleet, scope, dice, crew
        self.tickets = asyncio.Semaphore(0)
        self.left = 0
        self.bell = asyncio.Event()
        self.pushing = [asyncio.create_task(self.push_on(device)) for device in crew]

    async def end(self) -> None:
        self.raise_failures()
        for task in self.pushing:
            task.cancel()
        await asyncio.wait(self.pushing)

    def raise_failures(self) -> None:
        for task in self.pushing:
            if task.done():
                task.result()

    async def push_on(self, device: Device) -> None:
        while True:
            await self.tickets.acquire()
            device.write(1_200 if self.dice.random() < 0.03 else 1 + self.dice.randrange(40))
            await device.push(self.fleet, self.scope)
            self.left -= 1
            if self.left == 0:
                self.bell.set()

    async def rage(self) -> None:
        """Let devices push, and wait until a random part is acknowledged; the rest is then under way."""
        self.left = self.dice.randrange(1, PUSHES)
        self.bell.clear()
        for _ in range(PUSHES):
            self.tickets.release()
        bell = asyncio.create_task(self.bell.wait())
        await asyncio.wait([bell, *self.pushing], return_when=asyncio.FIRST_COMPLETED)
        self.raise_failures()

    def acknowledged(self) -> list[Op]:
        return [op for device in self.crew for op in device.ops[: device.acknowledged]]


async def lost(url: str, scope: str, acknowledged: list[Op]) -> set[str]:
    return {op.op_id for op in acknowledged} - {op.op_id for op in await stored_ops(url, scope)}


@asynccontextmanager
async def storming(fleet: Fleet, scope: str, dice: Random) -> AsyncIterator[Storm]:
    """A storm that goes on until the block ends; then every device pushes what it has left, and all is checked."""
    storm = Storm(fleet, scope, dice, devices(DEVICES, dice))
    yield storm
    await storm.end()
    await asyncio.gather(*(device.push(fleet, scope) for device in storm.crew))
    await check(fleet, scope, written(storm.crew))
    for reader in (Pager(fleet, scope, dice, limits=[5_000]), Puller(fleet, scope)):
        await reader.catch_up()
        assert len(reader.ops) == len(written(storm.crew))
    print(f"{len(written(storm.crew))} ops, {fleet.retries} retries")  # noqa: T201 - for a campaign with -s


@pytest.mark.timeout(60 + 20 * ROUNDS)
@pytest.mark.parametrize("servers", [1, 2])
async def test_acknowledged_ops_outlive_killed_servers(
    own_fleet: Fleet, dice: Random, scope: str, servers: int
) -> None:
    fleet = own_fleet
    await fleet.start(servers)
    async with storming(fleet, scope, dice) as storm:
        for _ in range(ROUNDS):
            await storm.rage()
            fleet.kill()
            assert await lost(fleet.database_url, scope, storm.acknowledged()) == set()
            await fleet.start()
    assert fleet.retries >= ROUNDS


async def test_servers_that_are_replaced_one_by_one_lose_nothing(own_fleet: Fleet, dice: Random, scope: str) -> None:
    fleet = own_fleet
    await fleet.start(2)
    async with storming(fleet, scope, dice) as storm:
        for _ in range(2):
            await storm.rage()
            await fleet.stop()
            await fleet.start()
            assert await lost(fleet.database_url, scope, storm.acknowledged()) == set()


class Cluster:
    """A durable PostgreSQL of the test's own, killed and started again."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.holders = [EmbeddedPostgres(directory).start()]
        self.url = self.holders[0].url()

    def kill_postmaster(self) -> None:
        pid_file = self.directory / "data" / "postmaster.pid"
        os.kill(int(pid_file.read_text().split()[0]), signal.SIGKILL)

    async def kill_a_backend(self) -> None:
        """PostgreSQL then ends all others, this test's too, and recovers by itself."""
        ended = asyncio.Event()
        working = "select pid from pg_stat_activity where application_name = 'foldpoint' order by state limit 1"
        outside = await asyncpg.connect(self.url)
        outside.add_termination_listener(lambda _: ended.set())
        os.kill(await outside.fetchval(working), signal.SIGKILL)
        await ended.wait()

    def start(self) -> None:
        self.holders.append(EmbeddedPostgres(self.directory).start())

    async def recovered(self) -> None:
        while True:
            try:
                async with connected(self.url):
                    return
            except (OSError, asyncpg.PostgresError):
                await asyncio.sleep(0.05)

    def stop(self) -> None:
        for holder in reversed(self.holders):
            holder.stop()


@pytest.fixture
def cluster(data_dir: Path) -> Iterator[Cluster]:
    found = Cluster(data_dir)
    yield found
    found.stop()


@pytest.mark.timeout(180)
async def test_acknowledged_ops_outlive_a_killed_postgresql(cluster: Cluster, dice: Random, scope: str) -> None:
    with ExitStack() as stack:
        async with Fleet(cluster.url, lambda **more: stack.enter_context(running_server(cluster.url, **more))) as fleet:
            await fleet.start(2)
            async with storming(fleet, scope, dice) as storm:
                await storm.rage()
                cluster.kill_postmaster()
                await asyncio.to_thread(cluster.start)
                assert await lost(cluster.url, scope, storm.acknowledged()) == set()
                await storm.rage()
                await cluster.kill_a_backend()
                await cluster.recovered()
                assert await lost(cluster.url, scope, storm.acknowledged()) == set()
                await storm.rage()
            assert fleet.retries >= 2
