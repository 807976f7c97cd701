"""One scope's lock keeps nobody else waiting: no other scope, and no reader of that scope."""

import asyncio
from random import Random  # noqa: TID251 - the type of `dice`
from typing import Any

import pytest

from app.database import NO_TIMEOUT, create_engine
from app.services.checkpoints.making_checkpoints import make_at_head
from app.sql.scopes import WHOLE
from tests.storms.devices import Device, body_of, devices
from tests.storms.fleet import Fleet
from tests.storms.readers import Pager, Puller
from tests.storms.stored import check, connected, held_device, held_scope, until, until_waiting

#: Calls on a scope that need not wait for its writer: method, rest of the path, what is sent.
READS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "glance": ("GET", "/v1/scopes/{}/", {}),
    "state": ("GET", "/v1/scopes/{}/state", {}),
    "state hash": ("GET", "/v1/scopes/{}/state/hash", {}),
    "past state": ("GET", "/v1/scopes/{}/state", {"params": {"at": '{"device-0":2}'}}),
    "transcript": ("GET", "/v1/scopes/{}/transcript", {"params": {"conversation": "c1"}}),
    "resume": ("GET", "/v1/scopes/{}/resume", {"params": {"conversation": "c1"}}),
    "conversations": ("GET", "/v1/scopes/{}/conversations", {}),
    "log": ("GET", "/v1/scopes/{}/log/knowledge", {}),
    "registry": ("GET", "/v1/scopes/{}/registries/config", {}),
    "committed run": ("GET", "/v1/scopes/{}/committed-run", {"params": {"agent": "planner", "run": "run-1"}}),
    "agent": ("GET", "/v1/scopes/{}/agents", {"params": {"agent": "planner"}}),
    "roster": ("GET", "/v1/scopes/{}/roster", {}),
    "checkpoints": ("GET", "/v1/scopes/{}/checkpoints", {}),
    "latest checkpoint": ("GET", "/sync/{}/checkpoints/latest", {}),
    "stable frontier": ("GET", "/sync/{}/stable-frontier", {}),
    "contact of a known device": ("POST", "/sync/{}/devices/device-1", {}),
    "contact of a new device": ("POST", "/sync/{}/devices/newcomer", {}),
    "ack": ("POST", "/sync/{}/devices/device-1/ack", {"json": {"wall_ms": 1, "counter": 0, "device_id": "device-1"}}),
    "lease": ("POST", "/sync/{}/leases/planner/acquire", {"json": {"device_id": "device-1", "ttl_ms": 1}}),
}


async def push_something(fleet: Fleet, scope: str, device: Device) -> None:
    device.write(4)
    await device.push(fleet, scope)


@pytest.mark.parametrize("where", ["before the insert", "before the commit"])
async def test_a_held_scope_is_read_and_other_scopes_are_written(
    fleet: Fleet, dice: Random, scope: str, where: str
) -> None:
    slow, other = f"{scope}_slow", f"{scope}_other"
    crew, others = devices(3, dice), devices(3, dice)
    for device in crew:
        await push_something(fleet, slow, device)
    before = [op for device in crew for op in device.ops]
    url = fleet.database_url
    async with held_scope(url, slow) if where == "before the insert" else held_device(url, slow, "device-0"):
        stuck = asyncio.create_task(push_something(fleet, slow, crew[0]))
        await until_waiting(url, 1)
        async with asyncio.timeout(8):
            await asyncio.gather(*(push_something(fleet, other, device) for device in others))
            for name, (method, path, request) in READS.items():
                response = await fleet.call(method, path.format(slow), **request)
                assert response.status_code == 200, (name, response.text)
            for reader in (Pager(fleet, slow, dice), Puller(fleet, slow)):
                await reader.catch_up()
                assert {op.op_id for op in reader.ops} == {op.op_id for op in before}
        assert not stuck.done()
    await stuck
    await check(fleet, slow, [op for device in crew for op in device.ops])
    await check(fleet, other, [op for device in others for op in device.ops])


async def test_held_scopes_keep_a_process_from_nothing_else_while_it_has_a_connection_left(
    own_fleet: Fleet, dice: Random, scope: str
) -> None:
    """A waiting scope costs its process one connection, however many clients wait."""
    fleet = own_fleet
    await fleet.start(pool_size="3")
    crew, (other,) = devices(8, dice), devices(1, dice)
    for name in ("one", "two"):
        await fleet.call("POST", f"/sync/{scope}_{name}/devices/device-0/ops", content=body_of([]))
    async with held_scope(fleet.database_url, f"{scope}_one"), held_scope(fleet.database_url, f"{scope}_two"):
        stuck = [asyncio.create_task(push_something(fleet, f"{scope}_one", device)) for device in crew[:4]]
        stuck += [asyncio.create_task(push_something(fleet, f"{scope}_two", device)) for device in crew[4:]]
        await until_waiting(fleet.database_url, 2)
        async with asyncio.timeout(8):
            await push_something(fleet, f"{scope}_other", other)
        assert not any(task.done() for task in stuck)
    await asyncio.gather(*stuck)
    assert fleet.retries == 0
    await check(fleet, f"{scope}_one", [op for device in crew[:4] for op in device.ops])


async def test_a_push_does_not_wait_for_a_checkpoint_or_a_collection_that_is_at_work(
    fleet: Fleet, dice: Random, scope: str
) -> None:
    """The text of a checkpoint is being written and cannot go on; the scope's pushes and reads do."""
    crew = devices(2, dice)
    for device in crew:
        await push_something(fleet, scope, device)
    for device in crew:
        acked = {"wall_ms": 2**62, "counter": 0, "device_id": device.name}
        await fleet.call("POST", f"/sync/{scope}/devices/{device.name}/ack", json=acked)
    url = fleet.database_url
    async with connected(url) as outside:
        await outside.execute("begin; lock table checkpoint_chunk in share mode")
        making = asyncio.create_task(fleet.call("POST", f"/v1/scopes/{scope}/checkpoints", timeout=60))
        collecting = asyncio.create_task(fleet.call("POST", f"/v1/scopes/{scope}/gc", timeout=60))
        await until_waiting(url, 2)
        async with asyncio.timeout(8):
            for device in crew:
                await push_something(fleet, scope, device)
            assert (await fleet.call("GET", f"/v1/scopes/{scope}/state")).status_code == 200
        assert not making.done()
        assert not collecting.done()
        await outside.execute("rollback")
    assert (await making).status_code == 200
    assert sum((await collecting).json()["dropped"].values()) >= 8
    (entry, *_) = (await fleet.call("GET", f"/v1/scopes/{scope}/checkpoints")).json()["checkpoints"]
    assert entry["latest"]


WAITED = """
select max(clock_timestamp() - query_start) > interval '300 ms'
from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()
"""
WORKING = "select pg_advisory_lock($1, id) from scope where slug = $2"


async def test_who_waits_for_a_long_work_on_a_scope_is_not_put_off(database_url: str, scope: str) -> None:
    """The wait for another's checkpoint has no time-out, whatever else has: nobody knows how long that takes."""
    engine = create_engine(database_url, pool_size=3, lock_timeout="50ms", **NO_TIMEOUT)
    async with connected(database_url) as outside:
        number = await outside.fetchval("insert into scope (slug, mode) values ($1, 'plain') returning id", scope)
        await outside.execute(WORKING, WHOLE, scope)
        making = asyncio.create_task(make_at_head(engine, number))

        async def long_enough() -> bool:
            return bool(await outside.fetchval(WAITED))

        await until(long_enough)
        assert not making.done()
        await outside.execute("select pg_advisory_unlock_all()")
        assert (await making).origin == "server"
    await engine.dispose()
