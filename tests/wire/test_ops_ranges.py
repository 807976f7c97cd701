"""Explicit ranges of one device's ops, by which a hole is found and filled (server.md §4)."""

from typing import Any

import httpx
import pytest

from app.services.reading.cursors import decode, encode
from tests.fixtures.devices import Device, NewDevice, collect, op_texts
from tests.wire.answers import read, refused


async def ranged(client: httpx.AsyncClient, scope: str, **params: Any) -> httpx.Response:
    return await client.get(f"/v1/scopes/{scope}/ops", params={"device": "my mac", **params})


@pytest.fixture
async def mac(device: NewDevice) -> Device:
    mac, other = device("my mac"), device("other")
    mac.facts(20)
    other.facts(30)
    await other.push()
    return await mac.push()


RANGES = {
    "all": ({}, range(20)),
    "from": ({"from_seq": 7}, range(7, 20)),
    "to": ({"to_seq": 7}, range(8)),
    "between": ({"from_seq": 7, "to_seq": 9}, range(7, 10)),
    "one": ({"from_seq": 7, "to_seq": 7}, range(7, 8)),
    "none": ({"from_seq": 8, "to_seq": 7}, range(0)),
    "to beyond the head": ({"from_seq": 18, "to_seq": 2**63 - 1}, range(18, 20)),
    "beyond the head": ({"from_seq": 2**63 - 1}, range(0)),
}


@pytest.mark.parametrize(("params", "seqs"), RANGES.values(), ids=RANGES)
async def test_a_range_is_of_one_device_and_both_ends_are_in_it(
    mac: Device, scope: str, params: dict[str, int], seqs: range
) -> None:
    response = await ranged(mac.client, scope, **params)
    assert op_texts(response) == [mac.ops[seq].text() for seq in seqs]
    assert read(response)["caught_up"] is True


async def test_a_range_is_paged_by_its_cursor(mac: Device, scope: str) -> None:
    found: list[bytes] = []
    params: dict[str, Any] = {"from_seq": 3, "to_seq": 17, "limit": 4}
    while True:
        response = await ranged(mac.client, scope, **params)
        found += op_texts(response)
        if read(response)["caught_up"]:
            break
        params["cursor"] = read(response)["cursor"]
    assert found == [op.text() for op in mac.ops[3:18]]
    lines = await mac.client.get(
        f"/v1/scopes/{scope}/ops", params={"device": "my mac", "limit": 4}, headers={"Accept": "application/x-ndjson"}
    )
    assert lines.content.splitlines() == [op.text() for op in mac.ops[:4]]
    assert lines.headers["foldpoint-caught-up"] == "false"


async def test_a_device_without_an_op_is_not_found(mac: Device, device: NewDevice, scope: str) -> None:
    await mac.client.post(device("idle").path)
    for name in ("nobody", "my_mac", "idle", "", "\0"):
        refused(await ranged(mac.client, scope, device=name), "not_found")


@pytest.mark.parametrize("params", [{"from_seq": -1}, {"to_seq": "x"}, {"from_seq": 2**63}, {"to_seq": 1.5}])
async def test_bounds_are_read_strictly(mac: Device, scope: str, params: dict[str, Any]) -> None:
    refused(await ranged(mac.client, scope, **params), "invalid_request")


async def test_below_the_floor_a_range_is_410_and_says_where_it_goes_on(mac: Device, scope: str) -> None:
    other = Device(mac.client, scope, "other")
    await other.ack(mac.ops[-1].hlc)
    await collect([mac], mac.ops[:12])
    response = await ranged(mac.client, scope, from_seq=11)
    problem = refused(response, "cursor_gone")
    assert response.headers["cache-control"] == "no-store"
    assert (problem["device_id"], problem["dropped_below"]) == ("my mac", 12)
    read(await mac.client.get(f"/v1/scopes/{scope}/checkpoints/{problem['checkpoint']}"))
    rest = await ranged(mac.client, scope, from_seq=11, cursor=problem["cursor"])
    assert op_texts(rest) == [op.text() for op in mac.ops[12:]]
    assert op_texts(await ranged(mac.client, scope, from_seq=12, to_seq=13)) == [op.text() for op in mac.ops[12:14]]
    assert len(op_texts(await ranged(mac.client, scope, device="other"))) == 30


async def test_R06_a_range_with_a_cursor_from_elsewhere_is_410(mac: Device, scope: str) -> None:
    epoch, number, reached = decode(read(await ranged(mac.client, scope))["cursor"])
    elsewhere = {
        encode([epoch, number + 1_000_000, reached]): "cursor_gone",
        encode(["0" * 32, number, reached]): "server_restored",
    }
    for cursor, code in elsewhere.items():
        problem = refused(await ranged(mac.client, scope, cursor=cursor), code)
        assert (problem["checkpoint"], problem["cursor"]) == (None, None)
