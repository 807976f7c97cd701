"""Retention and collection as a server's owner meets them: commands, an interval, a crash in the middle, `verify`."""

import asyncio
from collections.abc import AsyncIterator, Callable

import asyncpg
import httpx
import orjson
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from app.database import NO_TIMEOUT, create_engine
from app.services.collection.upkeep import collect_and_retain
from app.services.verification.verifying import verify
from foldpoint.checkpoint import checkpoint_from_ops
from tests.fixtures.command import foldpoint
from tests.fixtures.devices import Device
from tests.fixtures.server import RunningServer
from tests.storms.stored import until
from tests.wire.answers import read, refused

POLICY = {"rules": {"conversation": {"last_n": {"n": 2}}}, "default_rule": {"max_age_ms": {"max_age_ms": 5}}}
POLICY["rules"] |= {"intent": "keep_all", "routing": "keep_all"}  # type: ignore[operator]


@pytest.fixture
async def mac(start_server: Callable[..., RunningServer]) -> AsyncIterator[Device]:
    """A device all of whose ops are acknowledged, in the scope `ada`."""
    server = start_server()
    async with server.client() as client:
        mac = Device(client, "ada", "mac")
        for n in range(5):
            mac.say(f"turn {n}", conversation=f"c{n % 2}", timestamp=n)
            mac.write("knowledge", {"id": f"f{n}", "timestamp": n * 3})
            mac.write("skill", {"n": n, "timestamp": n * 3})
            mac.write("registry:config", {"id": f"k{n}"})
            mac.intend("r", "pending", epoch=n)
        await mac.push()
        await mac.ack()
        yield mac


@pytest.fixture
async def engine(database_url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_engine(database_url, pool_size=3, **NO_TIMEOUT)
    yield engine
    await engine.dispose()


async def faults(engine: AsyncEngine) -> list[str]:
    return [fault async for fault in verify(engine, 1)]


async def set_policy(client: httpx.AsyncClient) -> None:
    read(await client.put("/v1/scopes/ada/retention", content=orjson.dumps(POLICY)))


async def test_verify_holds_before_and_after_retention_and_after_what_came_later(
    mac: Device, engine: AsyncEngine
) -> None:
    await set_policy(mac.client)
    assert await faults(engine) == []
    done = await collect_and_retain(engine, 1)
    assert done["retention"]["dropped"]
    assert done["retention"]["tombstoned"]
    assert await faults(engine) == []
    mac.say("later", conversation="c0")
    mac.write("knowledge", {"id": "f0", "again": True})
    await mac.push()
    assert await faults(engine) == []
    read(await mac.client.post("/v1/scopes/ada/checkpoints"))
    assert await faults(engine) == []
    await mac.ack()
    await collect_and_retain(engine, 1)
    assert await faults(engine) == []


async def test_verify_finds_a_record_that_retention_did_not_take(
    mac: Device, engine: AsyncEngine, database_url: str
) -> None:
    await set_policy(mac.client)
    await collect_and_retain(engine, 1)
    connection = await asyncpg.connect(database_url)
    await connection.execute("delete from record where key = 'id:f4'")
    await connection.close()
    assert "log 'knowledge': the record at 'id:f4' is not the folded one" in await faults(engine)


FAILING = """
create function fail() returns trigger language plpgsql as $$ begin raise exception 'out of order'; end $$;
"""
#: A database that fails in the middle of the second surface that is trimmed.
FAIL_TRIMMING = f"""{FAILING}
create trigger fail before delete on record for each row when (old.surface = 5) execute function fail();
"""
FAIL_ONE = f"""{FAILING}
create trigger fail before insert on checkpoint for each row when (new.scope = 1) execute function fail();
"""


async def cut_short(mac: Device, engine: AsyncEngine, connection: asyncpg.Connection) -> None:
    """Retention under POLICY that fails on its way, and goes on failing until `fail` is dropped."""
    await set_policy(mac.client)
    await connection.execute(FAIL_TRIMMING)
    with pytest.raises(asyncpg.PostgresError, match="out of order"):
        await collect_and_retain(engine, 1)


async def test_what_was_cut_short_goes_on_with_the_policy_it_began_with(
    mac: Device, engine: AsyncEngine, database_url: str
) -> None:
    connection = await asyncpg.connect(database_url)
    await cut_short(mac, engine, connection)
    assert await faults(engine) == [
        "retention was cut short: `foldpoint gc` goes on with it; the state was not checked"
    ]
    begun = read(await mac.client.get("/v1/scopes/ada/retention"))["last"]
    assert not begun["done"]
    assert begun["dropped"]
    await connection.execute("drop function fail cascade")
    await connection.close()
    read(await mac.client.put("/v1/scopes/ada/retention", content=b"null"))
    done = await collect_and_retain(engine, 1)
    assert done["retention"]["policy"] == POLICY
    assert done["retention"]["done"]
    assert await faults(engine) == []
    assert (await collect_and_retain(engine, 1))["retention"] is None


async def test_the_commands_make_and_collect(mac: Device, database_url: str) -> None:
    made = await asyncio.to_thread(foldpoint, "checkpoint", database_url=database_url)
    assert made.stdout == f"ada: {checkpoint_from_ops(mac.ops).checkpoint_hash}\n"
    await set_policy(mac.client)
    collected = await asyncio.to_thread(foldpoint, "gc", "--scope", "ada", database_url=database_url)
    assert collected.stdout.splitlines()[0] == f"ada: {len(mac.ops)} ops dropped"
    assert "left as stubs" in collected.stdout.splitlines()[1]
    verified = await asyncio.to_thread(foldpoint, "verify", database_url=database_url)
    assert verified.returncode == 0, verified.stdout


async def test_with_an_interval_collection_goes_on_by_itself(
    start_server: Callable[..., RunningServer], mac: Device
) -> None:
    server = start_server(gc_interval_s="1")
    async with server.client() as client:

        async def is_collected() -> bool:
            return bool(read(await client.get("/v1/scopes/ada/"))["ops"] == 0 < len(mac.ops))

        await until(is_collected)
        (entry,) = read(await client.get("/v1/scopes/ada/checkpoints"))["checkpoints"]
        assert entry["base"]


async def test_a_scope_that_fails_keeps_no_other_from_its_checkpoint(
    start_server: Callable[..., RunningServer], database_url: str
) -> None:
    server = start_server(checkpoint_every="3")
    connection = await asyncpg.connect(database_url)
    await connection.execute(FAIL_ONE)
    await connection.close()
    async with server.client() as client:
        for name in ("first", "second"):
            mac = Device(client, name, "mac")
            mac.facts(5)
            await mac.push()

        async def is_made() -> bool:
            return bool(read(await client.get("/v1/scopes/second/checkpoints"))["checkpoints"])

        await until(is_made)
        assert read(await client.get("/v1/scopes/first/checkpoints"))["checkpoints"] == []


async def test_what_was_cut_short_is_finished_without_being_asked(
    mac: Device, engine: AsyncEngine, database_url: str
) -> None:
    """Until then no checkpoint is made of what is half trimmed, and no past is told from it."""
    connection = await asyncpg.connect(database_url)
    await cut_short(mac, engine, connection)
    response = await mac.client.get("/v1/scopes/ada/transcript", params={"conversation": "c0", "at": '{"mac":24}'})
    refused(response, "unavailable")
    assert (await mac.client.post("/v1/scopes/ada/checkpoints")).status_code == 500
    await connection.execute("drop function fail cascade")
    await connection.close()

    async def is_done() -> bool:
        return bool(read(await mac.client.get("/v1/scopes/ada/retention"))["last"]["done"])

    await until(is_done)
    assert await faults(engine) == []
