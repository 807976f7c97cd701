"""What a device pulls (car-sync.md §11.3): everything above its frontier, in (hlc, op_id) order, in one answer."""

import socket

import httpx
import orjson
import pytest

from foldpoint.op import Op
from tests.fixtures.devices import START_MS, Device, NewDevice, collect, in_order, op_ids, op_texts
from tests.fixtures.server import ADMIN_TOKEN, RunningServer
from tests.wire.answers import read, refused


def ids(ops: list[Op]) -> list[str]:
    return [op.op_id for op in in_order(ops)]


async def test_a_device_pulls_every_ones_ops_and_its_own_as_the_crate_emits_them(device: NewDevice) -> None:
    mac, phone = device("mac"), device("phone")
    for each in (mac, phone, mac, phone):
        each.say("Grüße ☕", timestamp=1.0)
        each.write("registry:config", {"id": "a", "value": 1e16}, "shared:acme")
        await each.push()
    assert op_texts(await mac.pull()) == [op.text() for op in in_order([*mac.ops, *phone.ops])]
    assert op_texts(await phone.pull()) == op_texts(await mac.pull())


async def test_R49_equal_stamps_are_in_the_byte_order_of_the_device_ids(device: NewDevice) -> None:
    """The numbers of devices follow their first push, which must not show."""
    names = ["\uffff1", "b", "a", "Z", "é2", "😀3", "a\0", "aa"]
    devices = [device(name) for name in names]
    for each in devices:
        each.wall_ms = START_MS
        each.say(each.name)
        await each.push()
    pulled = [orjson.loads(text) for text in op_texts(await devices[0].pull())]
    assert [op["device_id"] for op in pulled] == sorted(names)
    assert {(op["hlc"]["wall_ms"], op["hlc"]["counter"]) for op in pulled} == {(START_MS, 0)}


async def test_stamps_are_compared_as_numbers(device: NewDevice) -> None:
    mac, phone = device("mac"), device("phone")
    mac.wall_ms, phone.wall_ms = 9, 10
    for each in (phone, mac):
        each.facts(1)
        await each.push()
    assert op_ids(await mac.pull()) == [mac.ops[0].op_id, phone.ops[0].op_id]
    mac.wall_ms = phone.wall_ms = 10
    for _ in range(11):
        mac.wall_ms = 10
        mac.facts(1)
    await mac.push()
    assert op_ids(await phone.pull()) == ids([*mac.ops, *phone.ops])


async def test_a_pull_gives_what_lies_above_the_frontier(device: NewDevice) -> None:
    mac, phone = device("mac"), device("phone")
    for each in (mac, phone):
        each.facts(5)
        await each.push()
    since = {"mac": 1, "phone": 3, "nobody": 7}
    assert op_ids(await mac.pull(since)) == ids([*mac.ops[2:], *phone.ops[4:]])
    assert op_ids(await mac.pull({"mac": 4, "phone": 4})) == []
    assert op_ids(await mac.pull({"phone": 4})) == ids(mac.ops)


@pytest.mark.parametrize("seq", [5, 6, 2**63, 2**64 - 1])
async def test_a_frontier_beyond_the_head_gives_nothing_of_that_device(device: NewDevice, seq: int) -> None:
    mac, phone = device("mac"), device("phone")
    for each in (mac, phone):
        each.facts(5)
        await each.push()
    assert op_ids(await mac.pull({"mac": seq})) == ids(phone.ops)


@pytest.mark.parametrize("since", [b"[]", b"null", b"", b'{"mac":-1}', b'{"mac":1.0}', b'{"mac":"1"}', b'{"mac":null}'])
async def test_a_frontier_that_cannot_be_read_is_refused(device: NewDevice, since: bytes) -> None:
    mac = device("mac")
    refused(await mac.client.post(f"{mac.path}/pull", content=since), "invalid_request")


async def test_an_op_that_comes_late_with_an_old_stamp_is_pulled(device: NewDevice) -> None:
    mac, phone = device("mac"), device("phone")
    mac.facts(3)
    await mac.push()
    held = {"mac": 2}
    assert op_ids(await mac.pull(held)) == []
    phone.wall_ms = 5
    phone.facts(1)
    await phone.push()
    assert op_ids(await mac.pull(held)) == [phone.ops[0].op_id]
    assert op_ids(await mac.pull()) == ids([*phone.ops, *mac.ops])


async def test_a_pull_of_many_pages_is_one_answer_in_order(device: NewDevice) -> None:
    devices = [device(name) for name in ("c", "a", "b")]
    for start, each in enumerate(devices):
        each.wall_ms = START_MS + 400 * start
        each.facts(1_200 - 500 * start)
        await each.push()
    log = [op for each in devices for op in each.ops]
    assert op_ids(await devices[0].pull()) == ids(log)
    assert op_ids(await devices[0].pull({"c": 1_100, "a": 10})) == ids(
        [*devices[0].ops[1_101:], *devices[1].ops[11:], *devices[2].ops]
    )


async def test_a_pull_below_the_floor_is_the_409_that_the_client_knows(device: NewDevice) -> None:
    mac, phone = device("mac"), device("phone")
    for each in (mac, phone):
        each.facts(4)
        await each.push()
    covered = [*mac.ops[:3], *phone.ops[:2]]
    assert await collect([mac, phone], covered) == {"mac": 3, "phone": 2}
    problem = refused(await mac.pull({"mac": 1}), "frontier_truncated")
    assert problem["type"] == "https://parslee.ai/errors/car-sync/frontier-truncated"
    assert (problem["device_id"], problem["dropped_below"]) == ("mac", 3)
    assert refused(await mac.pull({"mac": 2}), "frontier_truncated")["device_id"] == "phone"
    assert refused(await mac.pull(), "frontier_truncated")["dropped_below"] == 3
    assert op_ids(await mac.pull({"mac": 2, "phone": 1})) == ids([*mac.ops[3:], *phone.ops[2:]])


async def test_a_pull_names_the_latest_checkpoint(device: NewDevice, scope: str) -> None:
    mac = device("mac")
    mac.facts(3)
    await mac.push()
    assert read(await mac.pull())["latest_checkpoint"] is None
    await collect([mac])
    latest = read(await mac.client.get(f"/sync/{scope}/checkpoints/latest"))["checkpoint_hash"]
    assert read(await mac.pull({"mac": 2})) == {"ops": [], "latest_checkpoint": latest}


async def test_a_pull_that_gc_overtakes_breaks_and_never_ends_cleanly(server: RunningServer, device: NewDevice) -> None:
    """The reader is slow, so the server still has most of the answer when GC drops it."""
    mac = device("mac")
    for _ in range(16):
        mac.write("registry:blobs", {"id": "one", "blob": "x" * 1_000_000})
    await mac.push()
    slow = httpx.AsyncHTTPTransport(socket_options=[(socket.SOL_SOCKET, socket.SO_RCVBUF, 256 * 1024)], verify=False)
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
    async with httpx.AsyncClient(base_url=server.base, headers=headers, transport=slow, timeout=60) as client:
        reader = Device(client, mac.scope, "mac")
        async with client.stream("POST", f"{reader.path}/pull", content=b"{}") as response:
            assert response.status_code == 200
            pieces = response.aiter_raw()
            await anext(pieces)
            assert await collect([mac]) == {"mac": 16}
            with pytest.raises(httpx.RemoteProtocolError):
                await anext(piece async for piece in pieces if not piece)
