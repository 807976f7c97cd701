"""Collection on demand, who holds it back, and retention (server.md §5; car-sync.md §10, §11.8)."""

from collections.abc import Sequence
from typing import Any

import httpx
import orjson
import pytest

from foldpoint.checkpoint import checkpoint_onto, read_checkpoint
from foldpoint.fold import fold, fold_onto
from foldpoint.hlc import Hlc
from foldpoint.op import Op
from foldpoint.retention import read_policy, retain
from foldpoint.state import state_hash
from tests.fixtures.devices import Device, NewDevice, checkpoint_text, envelope, op_ids, two_devices
from tests.fixtures.tokens import ClientOf
from tests.wire.answers import read, refused


async def gc(client: httpx.AsyncClient, scope: str, **params: Any) -> Any:
    return read(await client.post(f"/v1/scopes/{scope}/gc", params=params))


async def roster(client: httpx.AsyncClient, scope: str) -> Any:
    return read(await client.get(f"/v1/scopes/{scope}/roster"))


async def test_an_admins_collection_makes_the_checkpoint_that_is_missing(device: NewDevice, scope: str) -> None:
    """The roster lets go what no checkpoint covers: on the wire nothing is dropped, here one is made first."""
    mac, phone = await two_devices(device)
    for each in (mac, phone):
        await each.ack(phone.ops[-1].hlc)
    assert read(await mac.client.post(f"/sync/{scope}/gc")) == {"dropped": {}}
    assert await gc(mac.client, scope) == {"dropped": {"mac": 4, "phone": 4}, "retention": None}
    latest = await mac.client.get(f"/sync/{scope}/checkpoints/latest")
    assert latest.content == checkpoint_text([*mac.ops, *phone.ops])
    refused(await device("tablet").pull(), "frontier_truncated")
    assert op_ids(await device("tablet").pull({"mac": 3, "phone": 3})) == []
    assert await gc(mac.client, scope) == {"dropped": {}, "retention": None}


async def test_a_scope_whose_devices_acknowledge_nothing_is_left_as_it_is(device: NewDevice, scope: str) -> None:
    mac, _ = await two_devices(device)
    await mac.ack()
    assert await gc(mac.client, scope) == {"dropped": {}, "retention": None}
    assert read(await mac.client.get(f"/v1/scopes/{scope}/checkpoints"))["checkpoints"] == []


async def test_nothing_is_dropped_of_a_sealed_scope(device: NewDevice, scope: str) -> None:
    mac = device("mac")
    mac.write("conversation", envelope())
    await mac.push()
    await mac.ack()
    assert await gc(mac.client, scope) == {"dropped": {}, "retention": None}


@pytest.mark.parametrize("role", ["device", "executor", "reader"])
async def test_only_an_admin_collects_and_sets_retention(
    client_of: ClientOf, device: NewDevice, scope: str, role: str
) -> None:
    await two_devices(device)
    client = await client_of(role, scope)
    refused(await client.post(f"/v1/scopes/{scope}/gc"), "forbidden")
    refused(await client.get(f"/v1/scopes/{scope}/retention"), "forbidden")
    refused(await client.put(f"/v1/scopes/{scope}/retention", content=b"null"), "forbidden")


async def test_R31_the_roster_says_who_holds_collection_back_and_since_when(
    device: NewDevice, scope: str, database: Any
) -> None:
    mac, phone = await two_devices(device)
    entries = {entry["device_id"]: entry for entry in read(await mac.client.get(f"/sync/{scope}/roster"))}
    held = (await roster(mac.client, scope))["gc_held_by"]
    assert [(one["device_id"], one["acked"]) for one in held] == [("mac", None), ("phone", None)]
    assert [one["since_ms"] for one in held] == [entries[name]["added_at"]["wall_ms"] for name in ("mac", "phone")]
    await mac.ack()
    assert [one["device_id"] for one in (await roster(mac.client, scope))["gc_held_by"]] == ["phone"]
    await phone.ack(mac.ops[1].hlc)
    first = (await roster(mac.client, scope))["gc_held_by"]
    assert [(one["device_id"], one["acked"]) for one in first] == [("phone", mac.ops[1].hlc.to_json())]
    await phone.ack(mac.ops[1].hlc)
    await phone.ack(mac.ops[0].hlc)
    assert (await roster(mac.client, scope))["gc_held_by"][0]["since_ms"] == first[0]["since_ms"]
    await database.execute("update device set acked_at_ms = acked_at_ms - 1000 where slug = 'phone'")
    await phone.ack(mac.ops[2].hlc)
    assert (await roster(mac.client, scope))["gc_held_by"][0]["since_ms"] >= first[0]["since_ms"]


POLICY = {
    "rules": {
        "conversation": {"last_n": {"n": 2}},
        "run": {"per_agent_with_age": {"max_per_agent": 1, "max_age_ms": 0}},
    },
    "default_rule": "keep_all",
}


async def said_and_run(device: NewDevice) -> Device:
    mac = device("mac")
    for n in range(4):
        mac.say(f"turn {n}", conversation=f"c{n % 2}", timestamp=1_000 + n)
        mac.write("run", {"id": f"r{n}", "agent_id": "ada", "timestamp": 1_000 + n})
        mac.intend(f"r{n}", "committed", epoch=n + 1)
        mac.write("registry:config", {"id": f"k{n}"})
    mac.write("conversation", {"id": "with an id", "conversation_id": "c0", "timestamp": 1})
    await mac.push()
    await mac.ack()
    return mac


async def set_policy(client: httpx.AsyncClient, scope: str, policy: Any) -> Any:
    return read(await client.put(f"/v1/scopes/{scope}/retention", content=orjson.dumps(policy)))


def trimmed(ops: Sequence[Op], policy: Any, as_of_ms: int, tail: Sequence[Op] = ()) -> str:
    state = retain(fold(ops), read_policy(policy), as_of_ms).state
    return state_hash(
        fold_onto(type(state)({t: e for t, e in state.logs.items() if e}, state.registries, state.intents), tail)
    )


async def test_a_policy_is_applied_by_the_next_collection_to_what_is_below_the_floor(
    device: NewDevice, scope: str
) -> None:
    mac = await said_and_run(device)
    client, below = mac.client, list(mac.ops)
    assert await set_policy(client, scope, POLICY) == {"policy": POLICY, "last": None}
    before = read(await client.get(f"/v1/scopes/{scope}/state/hash"))["state_hash"]
    assert before == state_hash(fold(mac.ops))
    mac.say("above the floor", timestamp=1)
    await mac.push()
    answer = await gc(client, scope)
    assert answer["dropped"] == {"mac": len(below)}
    assert answer["retention"] == {
        "policy": POLICY, "as_of_ms": 1_003, "dropped": 2, "tombstoned": 4, "done": True,
    }  # fmt: skip
    assert read(await client.get(f"/v1/scopes/{scope}/state/hash"))["state_hash"] == trimmed(
        below, POLICY, 1_003, [mac.ops[-1]]
    )
    kept = read(await client.get(f"/v1/scopes/{scope}/transcript", params={"conversation": "c1"}))["turns"]
    assert [turn["content"] for turn in kept] == ["turn 3"]
    for n in range(4):
        params = {"agent": "ada", "run": f"r{n}"}
        assert read(await client.get(f"/v1/scopes/{scope}/committed-run", params=params))["status"] == "committed"
    assert (await gc(client, scope))["retention"] is None
    assert read(await client.get(f"/v1/scopes/{scope}/retention")) == {"policy": POLICY, "last": answer["retention"]}


async def test_the_list_of_conversations_knows_what_went(device: NewDevice, scope: str) -> None:
    mac = await said_and_run(device)
    await set_policy(mac.client, scope, {"rules": {"conversation": {"last_n": {"n": 1}}}, "default_rule": "keep_all"})
    await gc(mac.client, scope)
    listed = read(await mac.client.get(f"/v1/scopes/{scope}/conversations"))["conversations"]
    last = next(op for op in mac.ops if op.payload.get("content") == "turn 3")  # type: ignore[union-attr]
    stamp = last.hlc.to_json()
    assert listed == [{"conversation_id": "c1", "turns": 1, "first": stamp, "last": stamp}]


async def test_after_retention_what_lies_below_is_gone_and_what_lies_above_is_told_modulo_it(
    device: NewDevice, scope: str
) -> None:
    mac = await said_and_run(device)
    client, below = mac.client, list(mac.ops)
    read(await client.post(f"/v1/scopes/{scope}/checkpoints"))
    await set_policy(client, scope, POLICY)
    await gc(client, scope)
    (entry,) = read(await client.get(f"/v1/scopes/{scope}/checkpoints"))["checkpoints"]
    assert (entry["exact"], entry["base"], entry["latest"]) == (False, True, True)
    at = {"at": orjson.dumps({"mac": 3}).decode()}
    assert refused(await client.get(f"/v1/scopes/{scope}/state", params=at), "frontier_collected")["frontiers"] == [
        entry["frontier"]
    ]
    mac.say("later")
    mac.say("and later")
    await mac.push()
    for stop in (len(below), len(below) + 1):
        at = {"at": orjson.dumps({"mac": stop - 1}).decode()}
        answer = read(await client.get(f"/v1/scopes/{scope}/state", params=at))
        assert answer["state_hash"] == trimmed(below, POLICY, 1_003, mac.ops[len(below) : stop])
    base = read_checkpoint(orjson.loads((await client.get(f"/sync/{scope}/checkpoints/latest")).content))
    base.verify()
    assert base.state_hash == trimmed(below, POLICY, 1_003)


async def test_the_checkpoint_of_a_device_that_keeps_everything_is_not_ours_any_more(
    device: NewDevice, scope: str
) -> None:
    mac = await said_and_run(device)
    await set_policy(mac.client, scope, POLICY)
    await gc(mac.client, scope)
    mac.say("later")
    await mac.push()
    put = await mac.client.put(f"/sync/{scope}/checkpoints", content=checkpoint_text(mac.ops))
    refused(put, "checkpoint_state_mismatch")


@pytest.mark.parametrize(
    "policy",
    [
        1, {}, {"rules": {}}, {"rules": [], "default_rule": "keep_all"}, {"rules": {}, "default_rule": "keep_some"},
        {"rules": {}, "default_rule": {"last_n": {"n": -1}}}, {"rules": {}, "default_rule": {"last_n": {"n": 1}}},
        {"rules": {"intent": {"last_n": {"n": 1}}}, "default_rule": "keep_all"},
        {"rules": {"routing": {"max_age_ms": {"max_age_ms": 1}}}, "default_rule": "keep_all"},
        {"rules": {"conversations": {"last_n": {"n": 1}}}, "default_rule": "keep_all"},
        {"rules": {"registry:config": {"last_n": {"n": 1}}}, "default_rule": "keep_all"},
    ],
)  # fmt: skip
async def test_a_policy_that_cannot_be_applied_is_refused(device: NewDevice, scope: str, policy: Any) -> None:
    mac = await said_and_run(device)
    response = await mac.client.put(f"/v1/scopes/{scope}/retention", content=orjson.dumps(policy))
    assert "path" in refused(response, "invalid_request")


async def test_without_a_policy_nothing_is_trimmed_and_null_takes_it_back(device: NewDevice, scope: str) -> None:
    mac = await said_and_run(device)
    await set_policy(mac.client, scope, POLICY)
    assert await set_policy(mac.client, scope, None) == {"policy": None, "last": None}
    assert (await gc(mac.client, scope))["retention"] is None
    assert read(await mac.client.get(f"/v1/scopes/{scope}/state/hash"))["state_hash"] == state_hash(fold(mac.ops))


async def test_ages_count_from_the_time_that_is_asked_for(device: NewDevice, scope: str) -> None:
    mac = await said_and_run(device)
    policy = {"rules": {"run": {"max_age_ms": {"max_age_ms": 10}}}, "default_rule": "keep_all"}
    await set_policy(mac.client, scope, policy)
    assert (await gc(mac.client, scope))["retention"] is None
    assert (await gc(mac.client, scope, as_of_ms=1_012))["retention"]["tombstoned"] == 2
    assert (await gc(mac.client, scope, as_of_ms=2**63))["retention"]["tombstoned"] == 2
    assert Hlc(1, 0, "") < mac.ops[0].hlc


async def test_a_checkpoint_published_after_retention_is_no_more_exact_than_what_it_began_with(
    device: NewDevice, scope: str
) -> None:
    """A device takes our trimmed base, adds an op and publishes what it holds."""
    mac = await said_and_run(device)
    await set_policy(mac.client, scope, POLICY)
    await gc(mac.client, scope)
    base = read_checkpoint(orjson.loads((await mac.client.get(f"/sync/{scope}/checkpoints/latest")).content))
    mac.facts(1)
    await mac.push()
    own = b"".join(checkpoint_onto(base, mac.ops[-1:]).pieces())
    assert read(await mac.client.put(f"/sync/{scope}/checkpoints", content=own)) is True
    (entry, *_) = read(await mac.client.get(f"/v1/scopes/{scope}/checkpoints"))["checkpoints"]
    assert (entry["origin"], entry["exact"], entry["latest"]) == ("device", False, True)
