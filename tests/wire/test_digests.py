"""Digests (server.md §4): a difference is found by halving, without downloading."""

from hashlib import sha256
from typing import Any

import httpx
import pytest

from tests.fixtures.devices import Device, NewDevice, collect
from tests.wire.answers import read, refused


async def ask(client: httpx.AsyncClient, scope: str, device: str, **params: Any) -> httpx.Response:
    return await client.get(f"/v1/scopes/{scope}/digests", params={"device": device, **params})


@pytest.fixture
async def mac(device: NewDevice) -> Device:
    mac = device("my mac")
    mac.facts(9)
    return await mac.push()


def expected(mac: Device, start: int, stop: int) -> dict[str, Any]:
    ids = [op.op_id for op in mac.ops[start : stop + 1]]
    return {
        "device_id": "my mac", "from_seq": start if ids else None, "to_seq": min(stop, 8) if ids else None,
        "count": len(ids), "digest": sha256("".join(f"{one}\n" for one in ids).encode()).hexdigest(),
    }  # fmt: skip


@pytest.mark.parametrize(("start", "stop"), [(0, 8), (0, 0), (3, 5), (8, 8), (2, 99), (9, 12), (5, 4)])
async def test_a_digest_is_of_the_ids_in_the_range(mac: Device, scope: str, start: int, stop: int) -> None:
    answer = read(await ask(mac.client, scope, "my mac", from_seq=start, to_seq=stop))
    assert answer == expected(mac, start, stop)


async def test_without_bounds_it_is_of_the_whole_chain(mac: Device, scope: str) -> None:
    assert read(await ask(mac.client, scope, "my mac")) == expected(mac, 0, 8)


async def test_below_the_floor_it_is_gone_and_base_rows_are_never_counted(mac: Device, scope: str) -> None:
    mac.say("stays as a base row")
    await mac.push()
    await collect([mac])
    mac.facts(1)
    await mac.push()
    problem = refused(await ask(mac.client, scope, "my mac", from_seq=3), "cursor_gone")
    assert (problem["dropped_below"], problem["device_id"]) == (10, "my mac")
    assert read(await ask(mac.client, scope, "my mac", from_seq=10))["count"] == 1


async def test_a_device_of_which_nothing_is_held_is_not_found(mac: Device, scope: str) -> None:
    for name in ("nobody", "my_mac"):
        refused(await ask(mac.client, scope, name), "not_found")
