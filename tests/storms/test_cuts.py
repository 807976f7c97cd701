"""R22, R23: a connection breaks anywhere, and the client sends again; all is as if it had been sent once."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from random import Random  # noqa: TID251 - the type of `dice`
from typing import Any

import pytest

from foldpoint.checkpoint import checkpoint_from_ops
from foldpoint.op import Op
from tests.storms.devices import Device, body_of, devices
from tests.storms.fleet import Fleet
from tests.storms.readers import Pager, Puller
from tests.storms.stored import (
    check,
    connected,
    held_device,
    held_scope,
    open_transactions,
    stored_ops,
    terminate,
    until_waiting,
)
from tests.storms.wire import chunked, connection, request

SYNC, OWN = "/sync/{}/devices/{}/ops", "/v1/scopes/{}/devices/{}/ops"
PUSHES = pytest.mark.parametrize("path", [SYNC, OWN], ids=["sync", "v1"])
SIZES = pytest.mark.parametrize("size", [1, 25, 2_500])


async def begun(fleet: Fleet, scope: str, dice: Random, size: int) -> Device:
    """A device with a chain in a scope, and so many ops that wait to be pushed."""
    (device,) = devices(1, dice)
    device.write(3)
    await device.push(fleet, scope)
    device.write(size)
    return device


async def push_again(
    fleet: Fleet, scope: str, device: Device, path: str, ops: list[Op] | None = None
) -> tuple[int, int]:
    """Push what is not acknowledged, or these ops: how many were accepted, and how many were there already."""
    sent = device.unacknowledged if ops is None else ops
    response = await fleet.call("POST", path.format(scope, device.name), content=body_of(sent))
    assert response.status_code == 200, response.text
    answer = response.json()
    if path == OWN:
        assert [each["op_id"] for each in answer["results"]] == [op.op_id for op in sent]
        assert {each["result"] for each in answer["results"]} <= {"stored", "duplicate"}
    return answer["accepted"], answer["deduped"]


@pytest.mark.parametrize("resets", [True, False], ids=["reset", "end"])
@pytest.mark.parametrize("part", [0.0, 0.5, 1.0], ids=["after the headers", "in the middle", "before the last byte"])
async def test_a_body_that_breaks_off_leaves_nothing(
    fleet: Fleet, dice: Random, scope: str, part: float, resets: bool
) -> None:
    device = await begun(fleet, scope, dice, 25)
    body = body_of(device.unacknowledged)
    path = device.path(scope)
    whole = request(path, body)
    async with connection(fleet.running[0].base) as wire:
        await wire.send(whole[: len(whole) - len(body) + int(part * (len(body) - 1))])
        if resets:
            wire.reset()
        else:
            await wire.close()
    assert await push_again(fleet, scope, device, SYNC) == (25, 0)
    await check(fleet, scope, device.ops)


async def test_chunks_that_hold_a_whole_array_but_do_not_end_leave_nothing(
    fleet: Fleet, dice: Random, scope: str
) -> None:
    device = await begun(fleet, scope, dice, 25)
    async with connection(fleet.running[0].base) as wire:
        await wire.send(chunked(device.path(scope), body_of(device.unacknowledged)))
        await wire.close()
    assert await push_again(fleet, scope, device, SYNC) == (25, 0)
    await check(fleet, scope, device.ops)


@SIZES
@pytest.mark.parametrize("hold", [held_scope, held_device], ids=["before the insert", "before the commit"])
async def test_a_client_that_leaves_before_the_commit_may_send_again(
    fleet: Fleet, dice: Random, scope: str, size: int, hold: Callable[..., Any]
) -> None:
    device = await begun(fleet, scope, dice, size)
    lock = (scope, device.name) if hold is held_device else (scope,)
    async with hold(fleet.database_url, *lock), connection(fleet.running[0].base) as wire:
        await wire.send(request(device.path(scope), body_of(device.unacknowledged)))
        await until_waiting(fleet.database_url, 1)
        wire.reset()
    accepted, deduped = await push_again(fleet, scope, device, SYNC)
    assert accepted + deduped == size
    await check(fleet, scope, device.ops)


@SIZES
@PUSHES
async def test_an_answer_that_is_lost_after_the_commit_is_given_again(
    fleet: Fleet, dice: Random, scope: str, size: int, path: str
) -> None:
    device = await begun(fleet, scope, dice, size)
    sent = device.unacknowledged
    async with connection(fleet.running[0].base) as wire:
        await wire.send(request(path.format(scope, device.name), body_of(sent)))
        await wire.answered()
        wire.reset()
    assert await push_again(fleet, scope, device, path) == (0, size)
    later = device.write(4)
    half = sent[size // 2 :]
    assert await push_again(fleet, scope, device, path, [*half, *later]) == (4, len(half))
    assert await push_again(fleet, scope, device, path, sent) == (0, size)
    await check(fleet, scope, device.ops)


@SIZES
@pytest.mark.parametrize("hold", [held_scope, held_device], ids=["before the insert", "before the commit"])
async def test_a_database_connection_that_breaks_before_the_commit_leaves_nothing(
    fleet: Fleet, dice: Random, scope: str, size: int, hold: Callable[..., Any]
) -> None:
    device = await begun(fleet, scope, dice, size)
    lock = (scope, device.name) if hold is held_device else (scope,)
    async with hold(fleet.database_url, *lock):
        push = asyncio.create_task(fleet.once("POST", device.path(scope), content=body_of(device.unacknowledged)))
        await until_waiting(fleet.database_url, 1)
        assert await terminate(fleet.database_url) == 1
        response = await push
    assert (response.status_code, response.json()["code"]) == (503, "unavailable")
    assert len(await stored_ops(fleet.database_url, scope)) == 3
    assert await push_again(fleet, scope, device, SYNC) == (size, 0)
    await check(fleet, scope, device.ops)


async def test_a_server_that_lost_all_its_database_connections_goes_on(
    own_fleet: Fleet, dice: Random, scope: str
) -> None:
    """However many of them it kept, each is noticed at most once."""
    fleet, pool = own_fleet, 5
    await fleet.start(pool_size=str(pool))
    crew = devices(pool, dice)
    for _ in range(3):
        await asyncio.gather(*(_push_to_own_scope(fleet, scope, device) for device in crew))
        await terminate(fleet.database_url, idle=True)
    before = fleet.retries
    for _ in range(3):
        await asyncio.gather(*(_push_to_own_scope(fleet, scope, device) for device in crew))
    assert fleet.retries - before <= pool
    for device in crew:
        await check(fleet, f"{scope}_{device.name}", device.ops)


async def _push_to_own_scope(fleet: Fleet, scope: str, device: Device) -> None:
    device.write(2)
    await device.push(fleet, f"{scope}_{device.name}")


async def test_a_server_that_dies_between_two_chunks_has_made_progress(
    own_fleet: Fleet, dice: Random, scope: str
) -> None:
    fleet = own_fleet
    await fleet.start(2)
    device = await begun(fleet, scope, dice, 2_500)
    url = fleet.database_url
    async with connected(url) as second:
        async with held_scope(url, scope), connection(fleet.running[0].base) as wire:
            await wire.send(request(device.path(scope), body_of(device.unacknowledged)))
            await until_waiting(url, 1)
            # Whoever asks for the lock now gets it between two chunks: as a rule the first and the second.
            await second.execute("begin")
            asked = asyncio.create_task(second.execute("select from scope where slug = $1 for no key update", scope))
            await until_waiting(url, 2)
        await asked
        fleet.kill()
        held = len(await stored_ops(url, scope))
        assert held in (1_003, 2_003)
        await second.execute("rollback")
    assert await push_again(fleet, scope, device, SYNC) == (2_503 - held, held - 3)
    await check(fleet, scope, device.ops)


def asked_for(what: str, scope: str, device: Device) -> bytes:
    """A request that is answered in a stream."""
    match what:
        case "pull":
            return request(f"/sync/{scope}/devices/reader/pull", b"{}")
        case "checkpoint":
            return request(f"/sync/{scope}/checkpoints/latest", b"", method="GET")
        case "past state":
            return request(f"/v1/scopes/{scope}/state?at=%7B%22{device.name}%22:9%7D", b"", method="GET")
    return request(f"/v1/scopes/{scope}/state", b"", method="GET")


STREAMS = ("pull", "state", "past state", "checkpoint")


async def publish_checkpoint(fleet: Fleet, scope: str, device: Device) -> None:
    text = b"".join(checkpoint_from_ops(device.ops).pieces())
    assert (await fleet.call("PUT", f"/sync/{scope}/checkpoints", content=text)).json() is True


async def test_readers_that_hang_up_in_mid_answer_leave_their_connections_clean(
    own_fleet: Fleet, dice: Random, scope: str
) -> None:
    """A cancelled answer also cancels its rollback; a connection given back like that is inside a transaction."""
    fleet = own_fleet
    await fleet.start(pool_size="2")
    device = await begun(fleet, scope, dice, 4_000)
    await device.push(fleet, scope)
    await publish_checkpoint(fleet, scope, device)
    for number in range(60):
        what = dice.choice(("state", "state", *STREAMS))
        async with connection(fleet.running[0].base) as wire:
            await wire.send(asked_for(what, scope, device))
            if number % 3:  # the answer is somewhere on its way after so many others
                for _ in range(dice.randrange(12)):
                    await fleet.call("GET", "/healthz")
            else:
                await wire.answered()
            wire.reset()
    device.write()
    await device.push(fleet, scope)
    for reader in (Pager(fleet, scope, dice), Puller(fleet, scope)):
        await reader.catch_up()
        assert len(reader.ops) == len(device.ops)
    await check(fleet, scope, device.ops)
    assert fleet.retries == 0
    assert await open_transactions(fleet.database_url) == 0


async def test_readers_that_stop_reading_keep_nobody_waiting(own_fleet: Fleet, dice: Random, scope: str) -> None:
    fleet = own_fleet
    await fleet.start(pool_size="2")
    device = await begun(fleet, scope, dice, 0)
    for number in range(16):
        device.say(f"{number} " + "x" * 1_000_000)
    await device.push(fleet, scope)
    await publish_checkpoint(fleet, scope, device)
    async with AsyncExitStack() as stalled:
        for what in STREAMS * 2:
            wire = await stalled.enter_async_context(connection(fleet.running[0].base))
            await wire.send(asked_for(what, scope, device))
            await wire.answered()
        for _ in range(3):
            device.write()
            response = await fleet.once("POST", device.path(scope), content=body_of(device.ops[-1:]))
            assert response.status_code == 200, response.text
    await check(fleet, scope, device.ops)
