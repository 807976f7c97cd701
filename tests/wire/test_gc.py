"""Acks, the stable frontier, and what collection drops (car-sync.md §11.4, §11.5, §11.8)."""

from typing import Any

import httpx
import orjson
import pytest

from foldpoint.checkpoint import checkpoint_onto, read_checkpoint
from foldpoint.fold import fold
from foldpoint.hlc import Hlc
from foldpoint.op_text import read_op
from foldpoint.state import state_hash
from tests.fixtures.devices import Device, NewDevice, checkpoint_text, collect, op_ids, op_texts, two_devices
from tests.wire.answers import read, refused


async def stable(client: httpx.AsyncClient, scope: str) -> Any:
    return read(await client.get(f"/sync/{scope}/stable-frontier"))


async def gc(client: httpx.AsyncClient, scope: str) -> Any:
    return read(await client.post(f"/sync/{scope}/gc"))["dropped"]


async def latest(client: httpx.AsyncClient, scope: str) -> Any:
    return read(await client.get(f"/sync/{scope}/checkpoints/latest"))


async def test_an_ack_only_rises_and_is_not_checked_against_anything(device: NewDevice, scope: str) -> None:
    mac = device("mac")
    assert read(await mac.ack(Hlc(5, 3, "nobody"))) == {"advanced": True, "reinstated": False}
    for lower in (Hlc(5, 3, "nobody"), Hlc(5, 2, "z"), Hlc(5, 3, "a"), Hlc(4, 2**32 - 1, "z")):
        assert read(await mac.ack(lower)) == {"advanced": False, "reinstated": False}
    for higher in (Hlc(5, 3, "nobody\0"), Hlc(5, 4, ""), Hlc(2**64 - 1, 2**32 - 1, "😀")):
        assert read(await mac.ack(higher)) == {"advanced": True, "reinstated": False}
        (entry,) = read(await mac.client.get(f"/sync/{scope}/roster"))
        assert entry["acked"] == higher.to_json()


@pytest.mark.parametrize(
    "stamp", [b"{}", b"null", b"", b'{"wall_ms":1,"counter":4294967296,"device_id":"a"}', b'{"wall_ms":1,"counter":0}']
)
async def test_a_stamp_that_cannot_be_read_is_refused(device: NewDevice, stamp: bytes) -> None:
    mac = device("mac")
    assert "path" in refused(await mac.client.post(f"{mac.path}/ack", content=stamp), "invalid_request")


async def test_the_stable_frontier_is_the_smallest_ack_and_null_while_a_device_never_acked(
    device: NewDevice, scope: str
) -> None:
    mac, phone = await two_devices(device)
    assert await stable(mac.client, scope) is None
    await mac.ack()
    assert await stable(mac.client, scope) is None
    await phone.ack(mac.ops[1].hlc)
    assert await stable(mac.client, scope) == mac.ops[1].hlc.to_json()
    await device("tablet").pull({"mac": 3, "phone": 3})
    assert await stable(mac.client, scope) is None


async def test_nothing_is_dropped_without_a_stable_frontier_or_without_coverage(device: NewDevice, scope: str) -> None:
    mac, phone = await two_devices(device)
    assert await gc(mac.client, scope) == {}
    await mac.client.put(f"/sync/{scope}/checkpoints", content=checkpoint_text([*mac.ops, *phone.ops]))
    assert await gc(mac.client, scope) == {}
    other = Device(mac.client, scope + "2", "mac")
    other.facts(3)
    await other.push()
    await other.ack()
    assert await gc(other.client, other.scope) == {}
    assert len(op_ids(await mac.pull())) == 8


async def test_what_is_stable_and_covered_is_dropped_and_no_more(device: NewDevice, scope: str) -> None:
    mac, phone = await two_devices(device)
    await mac.client.put(f"/sync/{scope}/checkpoints", content=checkpoint_text([*mac.ops[:3], *phone.ops[:1]]))
    await mac.ack()
    await phone.ack(mac.ops[1].hlc)
    assert await gc(mac.client, scope) == {"mac": 2, "phone": 1}
    await phone.ack()
    assert await gc(mac.client, scope) == {"mac": 1}
    assert await gc(mac.client, scope) == {}
    assert op_ids(await mac.pull({"mac": 2, "phone": 0})) == [
        phone.ops[1].op_id, phone.ops[2].op_id, mac.ops[3].op_id, phone.ops[3].op_id,
    ]  # fmt: skip


async def test_below_the_floor_everything_is_a_duplicate_and_the_chain_goes_on(device: NewDevice) -> None:
    mac = device("mac")
    ops = mac.facts(4)
    await mac.push()
    assert await collect([mac]) == {"mac": 4}
    copy = device("mac")
    copy.write("knowledge", {"id": "another"})
    assert read(await copy.offer(copy.ops)) == {"accepted": 0, "deduped": 1}
    assert read(await mac.offer(ops)) == {"accepted": 0, "deduped": 4}
    mac.facts(2)
    refused(await mac.offer([mac.ops[5]]), "gap")
    await mac.push()
    assert op_ids(await mac.pull({"mac": 3})) == [op.op_id for op in mac.ops[4:]]


async def test_a_checkpoint_and_the_ops_after_it_are_the_whole_state(device: NewDevice, scope: str) -> None:
    mac, phone = await two_devices(device)
    for run in ("r1", "r2"):
        mac.intend(run, "pending")
        phone.intend(run, "committed")
    for each in (mac, phone):
        each.say("hello")
        each.write("registry:config", {"id": "a"})
        await each.push()
    log = [*mac.ops, *phone.ops]
    before = read(await mac.client.get(f"/v1/scopes/{scope}/state"))
    await collect([mac, phone], [op for op in log if op.seq < 6])
    mac.say("later")
    await mac.push()
    base = read_checkpoint(await latest(mac.client, scope))
    tail = await mac.pull({name: entry.seq for name, entry in base.frontier.items()})
    restored = checkpoint_onto(base, [read_op(text) for text in op_texts(tail)])
    assert restored.state_hash == state_hash(fold([*log, mac.ops[-1]]))
    after = read(await mac.client.get(f"/v1/scopes/{scope}/state"))
    assert after["state_hash"] == restored.state_hash
    assert before["state_hash"] == state_hash(fold(log))


async def test_where_no_single_checkpoint_covers_every_floor_one_is_made_at_the_head(
    device: NewDevice, scope: str
) -> None:
    """The crate's coverage is a union, which one bootstrap cannot use."""
    mac, phone = await two_devices(device)
    for covered in (mac.ops, phone.ops):
        await mac.client.put(f"/sync/{scope}/checkpoints", content=checkpoint_text(covered))
    for each in (mac, phone):
        await each.ack(phone.ops[-1].hlc)
    assert await gc(mac.client, scope) == {"mac": 4, "phone": 4}
    found = await latest(mac.client, scope)
    assert {name: entry["seq"] for name, entry in found["frontier"].items()} == {"mac": 3, "phone": 3}
    checkpoint = read_checkpoint(found)
    checkpoint.verify()
    assert orjson.loads(checkpoint_text([*mac.ops, *phone.ops])) == found
    fresh = device("tablet")
    assert op_ids(await fresh.pull({"mac": 3, "phone": 3})) == []


async def test_the_latest_checkpoint_always_reaches_every_floor(device: NewDevice, scope: str) -> None:
    """Where none that is stored covers every floor and dominates the latest, the server makes one at the head."""
    mac, phone = device("mac"), device("phone")
    mac.facts(4)
    phone.facts(3)
    phone.wall_ms += 100
    phone.facts(1)
    for each in (mac, phone):
        await each.push()
    for covered in ([*mac.ops[:2], *phone.ops], [*mac.ops, *phone.ops[:3]]):
        read(await mac.client.put(f"/sync/{scope}/checkpoints", content=checkpoint_text(covered)))
    for each in (mac, phone):
        await each.ack(mac.ops[-1].hlc)
    assert await gc(mac.client, scope) == {"mac": 4, "phone": 3}
    frontier = {name: entry["seq"] for name, entry in (await latest(mac.client, scope))["frontier"].items()}
    assert frontier == {"mac": 3, "phone": 3}
    assert op_ids(await mac.pull(frontier)) == []


async def test_an_evicted_device_holds_nothing_back(device: NewDevice, scope: str, database: Any) -> None:
    mac, phone = await two_devices(device)
    await mac.ack(phone.ops[-1].hlc)
    await mac.client.put(f"/sync/{scope}/checkpoints", content=checkpoint_text([*mac.ops, *phone.ops]))
    assert await gc(mac.client, scope) == {}
    evict = "update device d set evicted = true from scope s where s.id = d.scope and s.slug = $1 and d.slug = 'phone'"
    await database.execute(evict, scope)
    assert await gc(mac.client, scope) == {"mac": 4, "phone": 4}
    refused(await phone.pull(), "frontier_truncated")
    assert read(await phone.ack(Hlc(1, 0, ""))) == {"advanced": True, "reinstated": False}
    assert read(await phone.ack(phone.ops[-1].hlc)) == {"advanced": True, "reinstated": True}
