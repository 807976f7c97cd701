"""R14, R19: many writers of one device. One op holds a seq; whoever offers another is told which, and nothing forks."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from copy import deepcopy
from random import Random  # noqa: TID251 - the type of `dice`

import httpx
import pytest

from foldpoint.op import Op
from tests.storms.devices import Device, body_of, devices
from tests.storms.fleet import Fleet
from tests.storms.stored import check, held_device, until_waiting

CLIENTS = 50


async def push_at_once(
    fleet: Fleet, scope: str, device: Device, batches: Sequence[Sequence[Op]]
) -> list[httpx.Response]:
    """Each batch from a client of its own, through the servers by turns.

    A device that is known is held until both servers have come as far as they can.
    """
    async with AsyncExitStack() as hold:
        if device.acknowledged:
            await hold.enter_async_context(held_device(fleet.database_url, scope, device.name))
        calls = (fleet.once("POST", device.path(scope), content=body_of(batch)) for batch in batches)
        pushes = asyncio.gather(*calls)
        if device.acknowledged:
            await until_waiting(fleet.database_url, 2)
    return await pushes


def twins(device: Device, number: int) -> list[Device]:
    """Copies of a device's data, each of which goes on by itself."""
    copies = [deepcopy(device) for _ in range(number)]
    for index, copy in enumerate(copies):
        copy.dice.seed(f"twin {index}")
    return copies


@pytest.mark.parametrize("length", [0, 5], ids=["the first op of a new scope", "a successor of a known head"])
async def test_fifty_ops_for_one_seq_leave_one(fleet: Fleet, dice: Random, scope: str, length: int) -> None:
    (device,) = devices(1, dice)
    if length:
        device.write(length)
        await device.push(fleet, scope)
    copies = twins(device, CLIENTS)
    offered = [copy.say(f"twin {number}") for number, copy in enumerate(copies)]
    responses = await push_at_once(fleet, scope, device, [[op] for op in offered])
    assert Counter(response.status_code for response in responses) == {200: 1, 409: CLIENTS - 1}
    winner = next(op for op, response in zip(offered, responses, strict=True) if response.status_code == 200)
    for op, response in zip(offered, responses, strict=True):
        body = response.json()
        if op is winner:
            assert body == {"accepted": 1, "deduped": 0}
            continue
        assert (body["code"], body["device_id"], body["seq"]) == ("chain_fork", device.name, length)
        assert (body["stored_op_id"], body["op_id"], body["prev"]) == (winner.op_id, op.op_id, op.prev)
        assert (body["accepted"], body["deduped"]) == (0, 0)
    await check(fleet, scope, [*device.ops, winner])


async def test_nothing_after_a_fork_is_stored_and_both_others_and_the_first_branch_go_on(
    fleet: Fleet, dice: Random, scope: str
) -> None:
    device, other = devices(2, dice)
    device.write(10)
    await device.push(fleet, scope)
    (copy,) = twins(device, 1)
    copy.write(5)
    device.write(3)
    other.write(4)
    await device.push(fleet, scope)
    response = await fleet.once("POST", device.path(scope), content=body_of(copy.ops))
    assert (response.status_code, response.json()["code"], response.json()["deduped"]) == (409, "chain_fork", 10)
    problem = next(
        each["problem"]
        for each in (await fleet.once("GET", f"/v1/scopes/{scope}/roster")).json()["devices"]
        if each["device_id"] == device.name
    )
    assert (problem["code"], problem["seq"], problem["op_id"]) == ("chain_fork", 10, copy.ops[10].op_id)
    await other.push(fleet, scope)
    device.write(2)
    await device.push(fleet, scope)
    await check(fleet, scope, [*device.ops, *other.ops])


async def test_the_same_op_from_fifty_clients_is_stored_once(fleet: Fleet, dice: Random, scope: str) -> None:
    (device,) = devices(1, dice)
    device.write(6)
    await device.push(fleet, scope)
    again = device.write()
    responses = await push_at_once(fleet, scope, device, [again] * CLIENTS)
    answers = Counter((each.json()["accepted"], each.json()["deduped"]) for each in responses)
    assert answers == {(1, 0): 1, (0, 1): CLIENTS - 1}
    await check(fleet, scope, device.ops)


async def test_branches_of_any_length_end_in_one_chain(fleet: Fleet, dice: Random, scope: str) -> None:
    """The twins' branches share a beginning of a random length; the chain that stands is one of them, whole."""
    (device,) = devices(1, dice)
    device.write(3)
    await device.push(fleet, scope)
    copies = twins(device, CLIENTS)
    common = device.write(5)
    for copy in copies:
        shared = dice.randrange(6)
        copy.ops += common[:shared]
        for op in common[:shared]:
            copy.log.next_seq, copy.log.head = op.seq + 1, op.op_id
            copy.log.observe(op.hlc)
        for number in range(dice.randrange(1, 4)):
            copy.say(f"{id(copy)} goes on: {number}")
    responses = await push_at_once(fleet, scope, device, [copy.ops for copy in copies])
    assert {response.status_code for response in responses} == {200, 409}
    longest = max((copy.ops for copy, response in zip(copies, responses, strict=True) if response.is_success), key=len)
    for copy, response in zip(copies, responses, strict=True):
        if response.is_success:
            assert copy.ops == longest[: len(copy.ops)]
        else:
            body = response.json()
            assert body["code"] == "chain_fork"
            assert copy.ops[body["seq"]] != longest[body["seq"]]
    await check(fleet, scope, longest)
