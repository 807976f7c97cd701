"""Sealed scopes are relayed and counted; the server concludes nothing from what it cannot read (server.md §6, §9)."""

from typing import Any

import httpx
import orjson
import pytest

from tests.fixtures.devices import Device, NewDevice, checkpoint_text, collect, envelope, in_order, op_texts
from tests.wire.answers import read, refused


@pytest.fixture
def mac(device: NewDevice) -> Device:
    """A device that sealed a turn and a fact; neither is pushed."""
    mac = device("mac")
    mac.write("conversation", envelope("aa"))
    mac.write("knowledge", envelope("bb", kid=3), "shared:acme")
    return mac


async def test_the_first_op_fixes_the_mode(mac: Device, scope: str) -> None:
    assert read(await mac.client.post(f"{mac.path}/ops", content=b"[]"))["accepted"] == 0
    assert read(await mac.client.get(f"/v1/scopes/{scope}/"))["mode"] is None
    await mac.push()
    assert read(await mac.client.get(f"/v1/scopes/{scope}/"))["mode"] == "sealed"
    plain = Device(mac.client, scope + "-p", "mac")
    plain.facts(1)
    await plain.push()
    assert read(await mac.client.get(f"/v1/scopes/{scope}-p/"))["mode"] == "plain"


async def test_a_plaintext_op_in_a_sealed_scope_is_refused_where_it_stands(mac: Device) -> None:
    plain, sealed = mac.write("knowledge", {"id": "a"}), mac.write("knowledge", envelope())
    problem = refused(await mac.offer([*mac.ops[:2], plain, sealed]), "sealed_scope")
    assert (problem["device_id"], problem["seq"], problem["accepted"]) == ("mac", 2, 2)


async def test_an_envelope_in_a_plain_scope_is_refused_where_it_stands(device: NewDevice) -> None:
    mac = device("mac")
    ops = [*mac.facts(2), mac.write("knowledge", envelope()), *mac.facts(1)]
    problem = refused(await mac.offer(ops), "plain_scope")
    assert (problem["device_id"], problem["seq"], problem["accepted"]) == ("mac", 2, 2)


@pytest.mark.parametrize(
    "payload",
    [{"car_enc": "aes", "nonce": "", "ct": ""}, {"car_enc": "chacha20poly1305", "ct": ""}, [envelope()], "car_enc"],
)
async def test_what_is_no_envelope_is_plaintext(device: NewDevice, scope: str, payload: object) -> None:
    mac = device("mac")
    mac.write("knowledge", payload)  # type: ignore[arg-type]
    await mac.push()
    assert read(await mac.client.get(f"/v1/scopes/{scope}/"))["mode"] == "plain"


async def test_sealed_ops_are_relayed_as_they_are_and_counted(mac: Device, device: NewDevice, scope: str) -> None:
    phone = device("phone")
    phone.write("conversation", envelope("cc"))
    await mac.push()
    await phone.push()
    assert op_texts(await mac.pull()) == [op.text() for op in in_order([*mac.ops, *phone.ops])]
    glance = read(await mac.client.get(f"/v1/scopes/{scope}/"))
    assert (glance["ops"], glance["sealed_ops"], set(glance["records"].values())) == (3, 3, {0})
    state = read(await mac.client.get(f"/v1/scopes/{scope}/state"))
    assert state["state"] == {"intents": {}, "logs": {}, "registries": {}}
    assert (state["sealed_ops"], state["frontier"]) == (3, {"mac": 1, "phone": 0})
    assert read(await mac.client.get(f"/v1/scopes/{scope}/conversations"))["conversations"] == []
    assert read(await mac.client.get(f"/v1/scopes/{scope}/transcript?conversation="))["turns"] == []
    for surface in ("knowledge", "conversation"):
        assert read(await mac.client.get(f"/v1/scopes/{scope}/log/{surface}"))["records"] == []
    past = read(await mac.client.get(f"/v1/scopes/{scope}/state", params={"at": '{"mac":1}'}))
    assert (past["state"], past["frontier"]) == (state["state"], {"mac": 1})


async def test_a_sealed_scope_has_no_checkpoint_and_takes_none(mac: Device, scope: str) -> None:
    assert read(await mac.client.put(f"/sync/{scope}/checkpoints", content=checkpoint_text([]))) is True
    await mac.push()
    for text in (checkpoint_text(mac.ops), checkpoint_text([]), b"{}"):
        refused(await mac.client.put(f"/sync/{scope}/checkpoints", content=text), "sealed_scope")
    assert read(await mac.client.get(f"/sync/{scope}/checkpoints/latest")) is None
    assert read(await mac.pull())["latest_checkpoint"] is None


async def test_gc_drops_nothing_of_a_sealed_scope(mac: Device, scope: str) -> None:
    await mac.push()
    await mac.ack()
    assert read(await mac.client.post(f"/sync/{scope}/gc")) == {"dropped": {}}
    assert op_texts(await mac.pull()) == [op.text() for op in mac.ops]
    plain = Device(mac.client, scope + "-p", "mac")
    plain.facts(1)
    await plain.push()
    assert await collect([plain]) == {"mac": 1}


async def answers_of(client: httpx.AsyncClient, scope: str) -> list[httpx.Response]:
    """The executor's questions that a closed intent leaves open."""
    base, run = f"/v1/scopes/{scope}", {"agent": "ada", "run": "r"}
    pair = {"agent_id": "ada", "run_id": "r"}
    return [
        await client.get(f"{base}/committed-run", params=run),
        await client.post(f"{base}/committed-runs/lookup", json={"runs": [pair]}),
        await client.get(f"{base}/committed-runs", params={"agent": "ada"}),
        await client.get(f"{base}/intent", params=run),
        await client.post(f"{base}/fence", json={**pair, "device_id": "mac", "epoch": 1}),
    ]


async def test_while_an_intent_is_closed_the_executors_questions_have_no_answer(mac: Device, scope: str) -> None:
    """503, without Retry-After: waiting does not help."""
    await mac.push()
    for response in await answers_of(mac.client, scope):
        read(response)
    mac.write("intent", envelope("dd"))
    await mac.push()
    for response in await answers_of(mac.client, scope):
        problem = refused(response, "sealed_scope", status=503)
        assert problem["closed_intents"] == 1
        assert "retry-after" not in response.headers
    agent = read(await mac.client.get(f"/v1/scopes/{scope}/agents", params={"agent": "ada"}))
    assert agent == {"agent_id": "ada", "fencing_epoch": None, "lease": None}


MALFORMED: list[dict[str, Any]] = [
    {"nonce": 5},
    {"ct": None},
    {"nonce": ["0"]},
    {"kid": "1"},
    {"kid": -1},
    {"kid": 1.0},
]


async def test_a_malformed_envelope_blocks_nothing(mac: Device, scope: str) -> None:
    for fault in MALFORMED:
        mac.write("intent", {**envelope(), **fault})
    await mac.push()
    committed, lookup, *_ = await answers_of(mac.client, scope)
    assert read(committed) == {"status": "not_started", "record": None, "intent": None}
    assert read(lookup) == {"runs": [read(committed)]}
    assert read(await mac.client.get(f"/v1/scopes/{scope}/"))["sealed_ops"] == len(mac.ops)


async def test_the_v1_push_refuses_as_the_wire_does(mac: Device, scope: str) -> None:
    plain = mac.write("knowledge", {"id": "a"})
    body = orjson.dumps([op.to_json() for op in mac.ops])
    results = read(await mac.client.post(f"/v1/scopes/{scope}/devices/mac/ops", content=body))["results"]
    assert [result["result"] for result in results] == ["stored", "stored", "rejected"]
    assert (results[2]["code"], results[2]["op_id"]) == ("sealed_scope", plain.op_id)
