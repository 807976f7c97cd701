"""The state as a whole, and as it was at a frontier (server.md §5): exact, or 410 with what can still be asked."""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import httpx
import orjson
import pytest

from foldpoint.fold import fold, fold_at
from foldpoint.op import Op
from foldpoint.state import state_hash
from tests.fixtures.devices import Device, NewDevice, checkpoint_text, collect
from tests.wire.answers import read, refused

EMPTY: dict[str, Any] = {"intents": {}, "logs": {}, "registries": {}}


async def ask(client: httpx.AsyncClient, scope: str, at: Mapping[str, Any] | None = None) -> httpx.Response:
    params = {} if at is None else {"at": orjson.dumps(at).decode()}
    return await client.get(f"/v1/scopes/{scope}/state", params=params)


@pytest.fixture
async def devices(device: NewDevice) -> list[Device]:
    """Two devices that compete for every kind of record, their stamps interleaved."""
    mac, phone = device("mac"), device("my phone")
    for step in range(4):
        for each in (mac, phone):
            each.write("registry:config", {"id": "a", "by": each.name, "step": step})
            each.write("knowledge", {"id": f"k{step}", "by": each.name, "x": 1.0})
            each.intend(f"r{step % 2}", ("pending", "failed", "pending", "committed")[step], epoch=step)
            each.say(f"{each.name} {step}", conversation=f"c{step % 2}")
        mac.wall_ms, phone.wall_ms = phone.wall_ms + 3, mac.wall_ms + 1
    for each in (mac, phone):
        await each.push()
    return [mac, phone]


def log_of(devices: Sequence[Device]) -> list[Op]:
    return [op for each in devices for op in each.ops]


async def test_the_state_comes_with_its_hash_and_frontier(devices: list[Device], scope: str) -> None:
    client, folded = devices[0].client, fold(log_of(devices))
    head = {"state_hash": state_hash(folded), "frontier": {"mac": 15, "my phone": 15}, "sealed_ops": 0}
    response = await ask(client, scope)
    assert response.content == orjson.dumps(head)[:-1] + b',"state":' + folded.text() + b"}"
    assert read(await client.get(f"/v1/scopes/{scope}/state/hash")) == head


async def test_an_empty_scope_has_the_empty_state(admin: httpx.AsyncClient, scope: str) -> None:
    read(await admin.post(f"/sync/{scope}/devices/mac/ops", content=b"[]"))
    state = read(await ask(admin, scope))
    assert state == {
        "state_hash": "state-2a8b6f627428d109b6705fb8c0ffc8b9", "frontier": {}, "sealed_ops": 0, "state": EMPTY,
    }  # fmt: skip
    assert read(await ask(admin, scope, {})) == state


async def test_the_state_at_any_frontier_is_the_fold_of_what_it_holds(devices: list[Device], scope: str) -> None:
    client, log = devices[0].client, log_of(devices)
    turns = asyncio.Semaphore(6)

    async def check(frontier: dict[str, int]) -> None:
        async with turns:
            response = await ask(client, scope, frontier)
        expected = fold_at(log, frontier)
        head = {"state_hash": state_hash(expected), "frontier": frontier, "sealed_ops": 0}
        assert response.content == orjson.dumps(head)[:-1] + b',"state":' + expected.text() + b"}", frontier

    seqs = (None, 0, 1, 5, 6, 11, 14, 15, 2**63, 2**64 - 1)
    pairs = list(product(seqs, seqs))[::3]
    frontiers = [{n: s for n, s in zip(("mac", "my phone"), pair, strict=True) if s is not None} for pair in pairs]
    await asyncio.gather(*(check(frontier) for frontier in [*frontiers, {"nobody": 3}, {"my_phone": 3}]))


async def test_after_a_collection_what_is_not_exact_any_more_is_410(devices: list[Device], scope: str) -> None:
    client, log = devices[0].client, log_of(devices)
    first = [op for op in log if op.seq < 4]
    await collect(devices, first)
    second = [op for op in log if op.seq < (8 if op.device_id == "mac" else 6)]
    read(await client.put(f"/sync/{scope}/checkpoints", content=checkpoint_text(second)))
    for mac, phone in product((-1, 0, 3, 4, 7, 12, 15), repeat=2):
        frontier = {name: seq for name, seq in (("mac", mac), ("my phone", phone)) if seq >= 0}
        response = await ask(client, scope, frontier)
        if (mac >= 3 and phone >= 3) or not frontier:
            assert read(response)["state_hash"] == state_hash(fold_at(log, frontier)), frontier
            continue
        problem = refused(response, "frontier_collected")
        assert response.headers["cache-control"] == "no-store"
        answerable = sorted(problem["frontiers"], key=lambda one: one["mac"])
        assert answerable == [{"mac": 3, "my phone": 3}, {"mac": 7, "my phone": 5}]
        for one in answerable:
            assert read(await ask(client, scope, one))["state_hash"] == state_hash(fold_at(log, one))


async def test_a_checkpoint_is_no_way_to_a_frontier_where_ops_above_it_are_gone(
    devices: list[Device], scope: str
) -> None:
    """The older checkpoint answers itself, and nothing between itself and the floors."""
    client, log = devices[0].client, log_of(devices)
    old = [op for op in log if op.seq < 4]
    read(await client.put(f"/sync/{scope}/checkpoints", content=checkpoint_text(old)))
    await collect(devices, [op for op in log if op.seq < 8])
    at_old = {"mac": 3, "my phone": 3}
    assert read(await ask(client, scope, at_old))["state_hash"] == state_hash(fold(old))
    for between in ({"mac": 4, "my phone": 3}, {"mac": 7, "my phone": 3}, {"mac": 15, "my phone": 6}):
        assert at_old in refused(await ask(client, scope, between), "frontier_collected")["frontiers"]
    assert read(await ask(client, scope, {"mac": 9, "my phone": 7}))["state_hash"] == state_hash(
        fold_at(log, {"mac": 9, "my phone": 7})
    )


async def test_the_whole_state_is_the_same_after_a_collection(devices: list[Device], scope: str) -> None:
    client, log = devices[0].client, log_of(devices)
    before = await ask(client, scope)
    assert await collect(devices, log) == {"mac": 16, "my phone": 16}
    assert (await ask(client, scope)).content == before.content
    devices[0].write("registry:config", {"id": "a", "by": "later"})
    devices[1].intend("r1", "committed", epoch=9)
    for each in devices:
        await each.push()
    assert read(await ask(client, scope))["state_hash"] == state_hash(fold(log_of(devices)))


BAD = {
    "no JSON": "x", "no object": "[]", "null": "null", "a float": '{"mac":1.0}', "a string": '{"mac":"1"}',
    "negative": '{"mac":-1}', "too large": '{"mac":18446744073709551616}', "null for a seq": '{"mac":null}',
    "a lone surrogate": '{"\\ud800":1}', "nothing": "",
}  # fmt: skip


@pytest.mark.parametrize("at", BAD.values(), ids=BAD)
async def test_a_frontier_that_cannot_be_read_is_refused(devices: list[Device], scope: str, at: str) -> None:
    refused(await devices[0].client.get(f"/v1/scopes/{scope}/state", params={"at": at}), "invalid_request")
