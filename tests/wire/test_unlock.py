"""An unlocked scope: what it folds and answers is what a sealing device of its owner folds (server.md §9)."""

from typing import Any

import httpx
import orjson
import pytest

from foldpoint.fold import fold_at
from foldpoint.resume import resume
from foldpoint.run_seen import newest, sightings, status_of
from foldpoint.seal import Keyring, seal_payload
from foldpoint.state import state_hash
from foldpoint.transcript import transcript
from tests.fixtures.devices import body_of, envelope, op_texts
from tests.fixtures.sealing import ORG_KEYS, Sealing, folded, folded_ops, given, master, owner, put_keys
from tests.wire.answers import read, refused

ORG = {"audiences": {"org:acme": {str(epoch): key.hex() for epoch, key in ORG_KEYS.items()}}}


@pytest.fixture
def mac(admin: httpx.AsyncClient, scope: str) -> Sealing:
    return Sealing(admin, scope, "mac")


@pytest.fixture
def phone(admin: httpx.AsyncClient, scope: str) -> Sealing:
    return Sealing(admin, scope, "phone")


async def state_of(mac: Sealing) -> dict[str, Any]:
    found: dict[str, Any] = read(await mac.client.get(f"/v1/scopes/{mac.scope}/state"))
    hashed = read(await mac.client.get(f"/v1/scopes/{mac.scope}/state/hash"))
    assert {name: found[name] for name in hashed} == hashed
    return found


async def test_what_came_before_the_keys_and_after_them_is_folded_as_devices_fold_it(
    mac: Sealing, phone: Sealing
) -> None:
    mac.write_mixed(90)
    await mac.push()
    told = read(await put_keys(mac.client, mac.scope))
    mine = folded(mac.ops, Keyring(master()))
    assert told["unlocked"] == ["org:acme", "personal"]
    assert (told["opened_ops"], told["unopened_ops"]) == (72, 18)
    assert (await state_of(mac))["state_hash"] == state_hash(mine)
    phone.write_mixed(90)
    await phone.push()
    everything = [*mac.ops, *phone.ops]
    assert (await state_of(mac))["state_hash"] == state_hash(folded(everything, Keyring(master())))
    told = read(await put_keys(mac.client, mac.scope, ORG))
    assert told == {"unlocked": ["org:acme", "personal"], "opened_ops": 180, "unopened_ops": 0}
    state = await state_of(mac)
    assert state["state_hash"] == state_hash(folded(everything, owner()))
    assert (state["sealed_ops"], state["frontier"]) == (0, {"mac": 89, "phone": 89})


async def test_every_question_about_what_is_folded_is_answered(mac: Sealing, phone: Sealing) -> None:
    mac.write_mixed(60)
    await mac.push()
    read(await put_keys(mac.client, mac.scope))
    read(await put_keys(mac.client, mac.scope, ORG))
    phone.write_mixed(60)
    phone.wall_ms = mac.wall_ms
    await phone.push()
    ops = folded_ops([*mac.ops, *phone.ops], owner())
    state, base = folded([*mac.ops, *phone.ops], owner()), f"/v1/scopes/{mac.scope}"
    for name in ("c0", "c1", "c2"):
        asked, turns = {"conversation": name}, transcript(state, name)
        told = read(await mac.client.get(f"{base}/transcript", params=asked))["turns"]
        assert told == [turn.to_json() for turn in turns]
        assert read(await mac.client.get(f"{base}/resume", params=asked))["messages"] == resume(turns).messages
    listed = read(await mac.client.get(f"{base}/conversations"))["conversations"]
    assert [one["turns"] for one in listed] == [len(transcript(state, f"c{n}")) for n in range(3)]
    for tag in ("knowledge", "routing", "conversation"):
        found = read(await mac.client.get(f"{base}/log/{tag}?limit=5000"))["records"]
        assert found == [record.to_json() for record in state.log_entries(tag)]
    for agent in ("ada", "bob"):
        for run in range(9):
            own = [op for op in ops if op.surface == "intent" and op.payload["agent_id"] == agent]  # type: ignore[index, call-overload]
            seen = sightings(op for op in own if op.payload["id"] == f"run-{run}")  # type: ignore[index, call-overload]
            committed, last = state.committed_run(agent, f"run-{run}"), newest(seen)
            answer = read(await mac.client.get(f"{base}/committed-run", params={"agent": agent, "run": f"run-{run}"}))
            assert answer == {
                "status": status_of(committed, seen),
                "record": committed and committed.to_json(),
                "intent": last and last.to_json(),
            }
            at = {"agent": agent, "run": f"run-{run}", "at": '{"mac":59,"phone":59}'}
            assert read(await mac.client.get(f"{base}/committed-run", params=at)) == answer
        assert read(await mac.client.get(f"{base}/agents", params={"agent": agent}))["fencing_epoch"] == (
            state.fencing_epoch(agent)
        )
    ids = read(await mac.client.get(f"{base}/committed-runs", params={"agent": "bob"}))["run_ids"]
    assert ids == state.committed_run_ids("bob")


async def test_the_past_is_opened_on_the_way(mac: Sealing, phone: Sealing) -> None:
    mac.write_mixed(40)
    phone.write_mixed(40)
    await mac.push()
    read(await put_keys(mac.client, mac.scope, given(owner())))
    await phone.push()
    ops, base = folded_ops([*mac.ops, *phone.ops], owner()), f"/v1/scopes/{mac.scope}"
    for frontier in ({"mac": 10}, {"mac": 25, "phone": 3}, {"mac": 39, "phone": 39}):
        at = {"at": orjson.dumps(frontier).decode()}
        past = fold_at(ops, frontier)
        assert read(await mac.client.get(f"{base}/state", params=at))["state_hash"] == state_hash(past)
        turns = read(await mac.client.get(f"{base}/transcript", params={**at, "conversation": "c1"}))["turns"]
        assert turns == [turn.to_json() for turn in transcript(past, "c1")]
    changed = read(await mac.client.get(f"{base}/diff", params={"from": '{"mac":10}', "to": '{"mac":39,"phone":39}'}))
    assert changed["added"]


async def test_what_does_not_open_folds_as_a_device_of_that_login_folds_it(mac: Sealing) -> None:
    stranger = Keyring(bytes(32))
    for surface in ("conversation", "knowledge", "intent", "registry:config"):
        mac.write(surface, {"id": "a", "agent_id": "a"})
        payload = seal_payload({"id": "b"}, stranger.newest_key("personal"), bytes(12)).to_json()
        mac.write_raw(surface, {**payload, "id": "planted", "conversation_id": "c", "agent_id": "ada"})
        mac.write_raw(surface, {**payload, "nonce": 1})
        mac.write_raw(surface, {**payload, "ct": None})
        mac.write_raw(surface, {**payload, "kid": "1"})
        mac.write_raw(surface, {**payload, "kid": 3})
    await mac.push()
    told = read(await put_keys(mac.client, mac.scope))
    assert (told["opened_ops"], told["unopened_ops"]) == (4, 20)
    expected = folded(mac.ops, Keyring(master()))
    state = await state_of(mac)
    assert (state["state_hash"], state["sealed_ops"]) == (state_hash(expected), 20)
    base = f"/v1/scopes/{mac.scope}"
    turns = read(await mac.client.get(f"{base}/transcript", params={"conversation": ""}))["turns"]
    assert [(turn["role"], turn["content"]) for turn in turns] == [("user", "")] * 3
    assert read(await mac.client.get(f"{base}/agents", params={"agent": ""}))["fencing_epoch"] == 0


async def test_only_an_intent_that_lacks_a_key_leaves_an_executors_question_open(mac: Sealing) -> None:
    run = {"agent": "ada", "run": "r"}
    asked = f"/v1/scopes/{mac.scope}/committed-run"
    mac.intend("r", "pending")
    mac.write_raw("intent", envelope("dd"))
    await mac.push()
    assert refused(await mac.client.get(asked, params=run), "sealed_scope", 503)["closed_intents"] == 2
    read(await put_keys(mac.client, mac.scope))
    assert read(await mac.client.get(asked, params=run))["status"] == "in_doubt"
    mac.write("intent", {"id": "r", "agent_id": "ada", "epoch": 1, "status": "failed"}, "shared:acme")
    await mac.push()
    assert refused(await mac.client.get(asked, params=run), "sealed_scope", 503)["closed_intents"] == 1
    mac.intend("s", "committed")
    await mac.push()
    assert read(await mac.client.get(asked, params={"agent": "ada", "run": "s"}))["status"] == "committed"
    read(await put_keys(mac.client, mac.scope, ORG))
    assert read(await mac.client.get(asked, params=run))["status"] == "failed"


async def test_large_payloads_come_opened(mac: Sealing) -> None:
    mac.say("x" * 40_000)
    mac.write("knowledge", {"id": "large", "text": "y" * 40_000})
    await mac.push()
    read(await put_keys(mac.client, mac.scope))
    assert (await state_of(mac))["state_hash"] == state_hash(folded(mac.ops, owner()))
    base, asked = f"/v1/scopes/{mac.scope}", {"conversation": "c"}
    assert len(read(await mac.client.get(f"{base}/transcript", params=asked))["turns"][0]["content"]) == 40_000
    assert len(read(await mac.client.get(f"{base}/resume", params=asked))["messages"][0]["content"]) == 40_000


async def test_the_wire_stays_as_it_is(mac: Sealing, phone: Sealing) -> None:
    mac.write_mixed(20)
    await mac.push()
    read(await put_keys(mac.client, mac.scope))
    phone.write_mixed(3)
    await phone.push()
    assert sorted(op_texts(await mac.pull())) == sorted(op.text() for op in [*mac.ops, *phone.ops])
    assert read(await mac.offer(mac.ops)) == {"accepted": 0, "deduped": 20}
    assert read(await mac.pull())["latest_checkpoint"] is None
    assert read(await mac.client.post(f"/sync/{mac.scope}/gc")) == {"dropped": {}}
    refused(await mac.client.post(f"/v1/scopes/{mac.scope}/checkpoints"), "sealed_scope")
    glance = read(await mac.client.get(f"/v1/scopes/{mac.scope}/"))
    assert (glance["mode"], glance["keys"], glance["records"]["conversation"]) == ("sealed", "unlocked", 8)


async def test_a_plaintext_op_is_refused_as_ever(mac: Sealing) -> None:
    mac.write_mixed(3)
    await mac.push()
    read(await put_keys(mac.client, mac.scope))
    mac.write_raw("knowledge", {"id": "plain"})
    refused(await mac.offer(mac.ops), "sealed_scope")


async def test_v1_pushes_are_folded_too(mac: Sealing) -> None:
    read(await put_keys(mac.client, mac.scope))
    mac.write_mixed(9)
    path = f"/v1/scopes/{mac.scope}/devices/mac/ops"
    read(await mac.client.post(path, content=body_of(mac.ops)))
    assert (await state_of(mac))["state_hash"] == state_hash(folded(mac.ops, Keyring(master())))
