"""A scope at a glance, and its roster with what was refused (server.md §4)."""

from typing import Any

import httpx

from foldpoint.op import make_op
from tests.fixtures.devices import NewDevice, checkpoint_text, collect
from tests.fixtures.tokens import ClientOf
from tests.wire.answers import read, refused


async def test_a_scope_at_a_glance(device: NewDevice, admin: httpx.AsyncClient, scope: str) -> None:
    mac, idle = device("my mac"), device("idle")
    mac.facts(3)
    mac.say("x")
    await mac.push()
    await idle.client.post(idle.path)
    text = checkpoint_text(mac.ops)
    read(await admin.put(f"/sync/{scope}/checkpoints", content=text))
    await mac.ack()
    glance = read(await admin.get(f"/v1/scopes/{scope}/"))
    assert glance == read(await admin.get(f"/v1/scopes/{scope}"))
    roster = read(await admin.get(f"/sync/{scope}/roster"))
    latest = read(await admin.get(f"/sync/{scope}/checkpoints/latest"))["checkpoint_hash"]
    counts = dict.fromkeys(("routing", "declagent", "skill", "registry", "trajectory", "run", "intent"), 0)
    assert glance == {
        "scope": scope,
        "slug": scope,
        "mode": "plain",
        "keys": None,
        "frontier": {"my mac": 3},
        "stable_frontier": None,
        "ops": 4,
        "sealed_ops": 0,
        "records": {**counts, "conversation": 1, "knowledge": 3},
        "latest_checkpoint": latest,
        "devices": roster,
    }
    await idle.ack(mac.ops[-1].hlc)
    assert read(await admin.get(f"/v1/scopes/{scope}/"))["stable_frontier"] == mac.ops[-1].hlc.to_json()


async def test_a_collection_lowers_the_ops_and_not_the_records(
    device: NewDevice, admin: httpx.AsyncClient, scope: str
) -> None:
    mac = device("mac")
    mac.say("x")
    mac.facts(2)
    await mac.push()
    before = read(await admin.get(f"/v1/scopes/{scope}/"))
    await collect([mac])
    after = read(await admin.get(f"/v1/scopes/{scope}/"))
    assert (after["ops"], after["records"], after["frontier"]) == (0, before["records"], before["frontier"])


async def test_the_admins_roster_has_every_chain_with_its_head_floor_and_contact(
    device: NewDevice, admin: httpx.AsyncClient, scope: str
) -> None:
    mac, idle, quiet = device("my mac"), device("idle"), device("quiet")
    mac.facts(3)
    await mac.push()
    await collect([mac], mac.ops[:2])
    await idle.client.post(idle.path)
    read(await admin.post(f"/v1/scopes/{scope}/devices/quiet/ops", content=quiet.facts(1)[0].text().join([b"[", b"]"])))
    roster = read(await admin.get(f"/v1/scopes/{scope}/roster"))
    assert roster.keys() == {"devices", "stable_frontier", "gc_held_by", "checkpoint_problem"}
    assert (roster["stable_frontier"], roster["checkpoint_problem"]) == (None, None)
    entries = {entry["device_id"]: entry for entry in read(await admin.get(f"/sync/{scope}/roster"))}
    heads = [{"seq": op.seq, "hlc": op.hlc.to_json(), "head": op.op_id} for op in (mac.ops[-1], quiet.ops[-1])]
    nothing = {"head": None, "dropped_below": 0, "acked_at_ms": None, "problem": None}
    acked = next(device["acked_at_ms"] for device in roster["devices"] if device["slug"] == "my_mac")
    assert roster["devices"] == [
        {**nothing, "device_id": "idle", "slug": "idle", "roster": entries["idle"]},
        {
            **nothing, "device_id": "my mac", "slug": "my_mac", "head": heads[0], "dropped_below": 2,
            "roster": entries["my mac"], "acked_at_ms": acked,
        },
        {**nothing, "device_id": "quiet", "slug": "quiet", "head": heads[1], "roster": None},
    ]  # fmt: skip


async def test_R14_a_fork_is_recorded_where_an_admin_sees_it_and_stays_there(
    device: NewDevice, admin: httpx.AsyncClient, scope: str
) -> None:
    mac, copy = device("mac"), device("mac")
    mac.facts(2)
    await mac.push()
    copy.write("knowledge", {"id": "mine"})
    offered = refused(await copy.offer(copy.ops), "chain_fork")
    mac.facts(1)
    await mac.push()
    (entry,) = read(await admin.get(f"/v1/scopes/{scope}/roster"))["devices"]
    problem = entry["problem"]
    for fact in ("code", "detail", "device_id", "seq", "stored_op_id", "op_id"):
        assert problem[fact] == offered[fact]
    assert problem["at"]


async def test_R08_R24_a_refused_op_is_shown_with_its_reason_on_both_paths(
    device: NewDevice, admin: httpx.AsyncClient, scope: str
) -> None:
    mac, phone = device("mac"), device("phone")
    far = make_op("mac", 0, None, mac.facts(1)[0].hlc._replace(wall_ms=2**62), "personal", "knowledge", 1)
    refused(await mac.offer([far]), "clock_skew")
    body = b"[7]"
    read(await admin.post(f"/v1/scopes/{scope}/devices/phone/ops", content=body))
    shown = {entry["device_id"]: entry for entry in read(await admin.get(f"/v1/scopes/{scope}/roster"))["devices"]}
    assert (shown["mac"]["problem"]["code"], shown["mac"]["problem"]["op_wall_ms"]) == ("clock_skew", 2**62)
    assert (shown["phone"]["problem"]["code"], shown["phone"]["problem"]["index"]) == ("unreadable_op", 0)
    assert phone.ops == []


async def problem(admin: httpx.AsyncClient, scope: str) -> Any:
    (entry,) = read(await admin.get(f"/v1/scopes/{scope}/roster"))["devices"]
    return entry["problem"]


async def test_R24_a_problem_says_since_when_until_a_push_succeeds(
    device: NewDevice, admin: httpx.AsyncClient, scope: str
) -> None:
    """The times in a refusal for its clock differ with each try, and the place of an op in its request."""
    mac = device("mac")
    first = mac.facts(1)[0]
    far = make_op("mac", 0, None, first.hlc._replace(wall_ms=2**62), "personal", "knowledge", 1)
    refused(await mac.offer([far]), "clock_skew")
    since = (await problem(admin, scope))["at"]
    refused(await mac.offer([far]), "clock_skew")
    assert (await problem(admin, scope))["at"] == since
    await mac.push()
    assert await problem(admin, scope) is None
    refused(await mac.offer([far]), "chain_fork")
    assert (await problem(admin, scope))["at"] > since


async def test_R24_what_is_refused_for_another_reason_is_another_problem(
    device: NewDevice, admin: httpx.AsyncClient, scope: str
) -> None:
    mac = device("mac")
    body = b"[" + mac.facts(2)[0].text() + b",7]"
    refused(await mac.client.post(f"{mac.path}/ops", content=body), "unreadable_op")
    stuck = await problem(admin, scope)
    assert (stuck["code"], stuck["index"]) == ("unreadable_op", 1)
    refused(await mac.client.post(f"{mac.path}/ops", content=b"[7]"), "unreadable_op")
    again = await problem(admin, scope)
    assert (again["at"], again["index"]) == (stuck["at"], 0)
    refused(await mac.offer(mac.facts(3)[-1:]), "gap")
    assert (await problem(admin, scope))["at"] > stuck["at"]


async def test_R14_a_fork_says_since_when_and_a_second_one_is_another(
    device: NewDevice, admin: httpx.AsyncClient, scope: str
) -> None:
    mac = device("mac")
    mac.facts(1)
    await mac.push()
    since = []
    for seq in (0, 1):
        fork = make_op("mac", seq, mac.ops[seq].prev, mac.ops[seq].hlc, "personal", "knowledge", {"id": "other"})
        for _ in range(2):
            refused(await mac.offer([fork]), "chain_fork")
            since.append((await problem(admin, scope))["at"])
        mac.facts(1)
        await mac.push()
    assert since[0] == since[1] < since[2] == since[3] == (await problem(admin, scope))["at"]


async def test_only_an_admin_sees_the_roster_with_its_problems(client_of: ClientOf, scope: str) -> None:
    for role in ("device", "executor", "reader"):
        client = await client_of(role, scope)
        refused(await client.get(f"/v1/scopes/{scope}/roster"), "forbidden")
        read(await client.get(f"/sync/{scope}/roster"))
