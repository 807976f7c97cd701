"""What one caller cannot do to the others, whatever it sends."""

import httpx

from tests.fixtures.devices import NewDevice, body_of
from tests.fixtures.tokens import ClientOf
from tests.wire.answers import read, refused

MANY = 1_000_000


async def test_a_strangers_large_body_is_not_read_to_the_end(stranger: httpx.AsyncClient, scope: str) -> None:
    zeros = b"[" + b"0," * MANY + b"0]"
    for method, path in (
        ("POST", f"/sync/{scope}/devices/mac/ops"),
        ("POST", f"/sync/{scope}/devices/mac/ack"),
        ("PUT", f"/sync/{scope}/checkpoints"),
        ("POST", f"/v1/scopes/{scope}/fence"),
    ):
        refused(await stranger.request(method, path, content=zeros), "unauthorized")


async def test_a_bound_token_writes_no_chain_of_another_id_with_its_slug(
    device: NewDevice, client_of: ClientOf, scope: str
) -> None:
    colon, dot = device("a:b"), device("a.b")
    colon.facts(1)
    await colon.push()
    dot.facts(1)
    bound = await client_of("device", scope, "a.b")
    path = f"/sync/{scope}/devices/a_b/ops"
    colon.facts(1)
    refused(await bound.post(path, content=body_of(colon.ops)), "forbidden")
    refused(await bound.post(path, content=body_of(dot.ops)), "forbidden")


async def test_a_page_is_full_however_many_devices_there_are(device: NewDevice, scope: str) -> None:
    devices = [device(f"d{number}") for number in range(120)]
    for number, each in enumerate(devices):
        each.wall_ms += number
        each.facts(3)
        await each.push()
    page = read(await devices[0].client.get(f"/v1/scopes/{scope}/ops", params={"limit": 300}))
    assert len(page["ops"]) == 300
    rest = read(await devices[0].client.get(f"/v1/scopes/{scope}/ops", params={"cursor": page["cursor"]}))
    assert rest["caught_up"]
    ids = [op["op_id"] for op in page["ops"] + rest["ops"]]
    assert sorted(ids) == sorted(op.op_id for each in devices for op in each.ops)


async def test_values_that_no_column_holds_are_refused_and_not_a_failure(admin: httpx.AsyncClient, scope: str) -> None:
    await admin.post(f"/sync/{scope}/devices/mac/ops", content=b"[]")
    refused(await admin.get(f"/v1/scopes/{scope}/checkpoints/%00"), "not_found")
    entry = {"seq": 2**63, "hlc": {"wall_ms": 1, "counter": 0, "device_id": "mac"}, "head": "op-0"}
    false = {
        "frontier": {"mac": entry},
        "scopes": [],
        "state_hash": "state-2a8b6f627428d109b6705fb8c0ffc8b9",
        "checkpoint_hash": "ckpt-\x00",
        "state": {"logs": {}, "registries": {}, "intents": {}},
    }
    refused(await admin.put(f"/sync/{scope}/checkpoints", json=false), "checkpoint_invalid")
