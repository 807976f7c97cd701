"""What is dropped after an answer was promised and before any of it is sent: a problem that says what to do instead."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import asyncpg
import httpx
import pytest

from app.sql import gc
from foldpoint.checkpoint import checkpoint_from_ops
from tests.fixtures.devices import Device, NewDevice, checkpoint_text
from tests.fixtures.server import RunningServer
from tests.storms.stored import until_waiting
from tests.wire.answers import read, refused

UNKEEP = "update checkpoint set kept = false where scope = $1 and hash = $2 returning id"
SWEEP = "delete from checkpoint_chunk where scope = $1 and checkpoint = $2"
POINT = """
update scope set latest_checkpoint = (select id from checkpoint where scope = $1 and hash = $2) where id = $1
"""

Overtaken = Callable[[str, Coroutine[Any, Any, httpx.Response]], AbstractAsyncContextManager["Call"]]


class Call:
    """A call whose `answer` is there once it was overtaken; `scope` is the number of its scope."""

    scope: int
    answer: httpx.Response


@pytest.fixture
def overtaken(server: RunningServer, database: asyncpg.Connection, scope: str) -> Overtaken:
    """Let a call come as far as where it reads a table, and then do the block's work before it."""

    @asynccontextmanager
    async def overtake(table: str, asked: Coroutine[Any, Any, httpx.Response]) -> AsyncIterator[Call]:
        call = Call()
        call.scope = await database.fetchval("select id from scope where slug = $1", scope)
        async with database.transaction():
            await database.execute(f"lock table {table} in access exclusive mode")
            answering = asyncio.create_task(asked)
            await until_waiting(server.database_url, 1)
            yield call
        call.answer = await answering

    return overtake


@pytest.fixture
async def mac(device: NewDevice, scope: str) -> Device:
    """A device with two stored checkpoints, the later one the latest."""
    mac = device("mac")
    mac.facts(4)
    await mac.push()
    for stop in (2, 4):
        read(await mac.client.put(f"/sync/{scope}/checkpoints", content=checkpoint_text(mac.ops[:stop])))
    return mac


def hash_of(mac: Device, stop: int) -> str:
    return checkpoint_from_ops(mac.ops[:stop]).checkpoint_hash


async def remove(database: asyncpg.Connection, scope: int, checkpoint_hash: str) -> None:
    """As upkeep does with what it keeps no longer."""
    await database.execute(SWEEP, scope, await database.fetchval(UNKEEP, scope, checkpoint_hash))


@pytest.mark.parametrize("accept", ["application/json", "application/x-ndjson"])
async def test_a_checkpoint_that_is_removed_is_gone_and_the_latest_is_named(
    mac: Device, database: asyncpg.Connection, overtaken: Overtaken, accept: str
) -> None:
    url = f"/v1/scopes/{mac.scope}/checkpoints/{hash_of(mac, 2)}"
    async with overtaken("checkpoint_chunk", mac.client.get(url, headers={"Accept": accept})) as call:
        await remove(database, call.scope, hash_of(mac, 2))
    problem = refused(call.answer, "cursor_gone")
    assert problem["checkpoint"] == hash_of(mac, 4)
    assert problem == refused(await mac.client.get(url, headers={"Accept": accept}), "cursor_gone")


async def test_in_place_of_a_latest_that_is_removed_the_later_one_is_sent(
    mac: Device, database: asyncpg.Connection, overtaken: Overtaken
) -> None:
    async with overtaken("checkpoint_chunk", mac.client.get(f"/sync/{mac.scope}/checkpoints/latest")) as call:
        await database.execute(POINT, call.scope, hash_of(mac, 2))
        await remove(database, call.scope, hash_of(mac, 4))
    assert read(call.answer)["checkpoint_hash"] == hash_of(mac, 2)


async def test_a_pull_of_which_the_first_ops_are_dropped_is_truncated(
    mac: Device, database: asyncpg.Connection, overtaken: Overtaken
) -> None:
    async with overtaken("op", mac.pull()) as call:
        mac_no = await database.fetchval("select no from device where scope = $1 and slug = 'mac'", call.scope)
        await gc.drop(database, call.scope, mac_no, 1)
    problem = refused(call.answer, "frontier_truncated")
    assert (problem["device_id"], problem["dropped_below"]) == ("mac", 2)
    assert problem == refused(await mac.pull(), "frontier_truncated")
