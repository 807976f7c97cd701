"""The server's own checkpoints (server.md §5): made on demand and unasked, the bytes of the crate, three kept."""

from collections.abc import Callable
from typing import Any

import asyncpg
import httpx
import orjson
import pytest

from foldpoint.checkpoint import checkpoint_from_ops, checkpoint_onto, read_checkpoint
from foldpoint.fold import fold
from foldpoint.op import Op
from foldpoint.op_text import read_op
from foldpoint.state import SyncState, state_hash
from tests.fixtures.devices import Device, NewDevice, checkpoint_text, envelope, op_texts
from tests.fixtures.server import RunningServer
from tests.fixtures.tokens import ClientOf
from tests.storms.stored import until
from tests.wire.answers import read, refused

NDJSON = {"accept": "application/x-ndjson"}


async def make(client: httpx.AsyncClient, scope: str) -> dict[str, Any]:
    entry: dict[str, Any] = read(await client.post(f"/v1/scopes/{scope}/checkpoints"))
    return entry


async def listed(client: httpx.AsyncClient, scope: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = read(await client.get(f"/v1/scopes/{scope}/checkpoints"))["checkpoints"]
    return entries


def write_everything(device: Device) -> None:
    device.facts(2)
    device.write("registry:config", {"id": "a", "by": device.name})
    device.write("run", {"id": "r", "agent_id": "ada"}, "shared:acme")
    device.intend("r1", "pending")
    device.intend("r1", "committed", epoch=2)
    device.say('"quoted" \\ and 😀')


@pytest.fixture
async def devices(device: NewDevice) -> list[Device]:
    both = [device("mac"), device("my phone")]
    for each in both:
        write_everything(each)
        await each.push()
    return both


def log_of(devices: list[Device]) -> list[Op]:
    return [op for each in devices for op in each.ops]


async def test_a_checkpoint_made_now_is_the_crates_and_a_device_bootstraps_from_it(
    devices: list[Device], device: NewDevice, scope: str
) -> None:
    client, log = devices[0].client, log_of(devices)
    entry, own = await make(client, scope), checkpoint_from_ops(log)
    assert (entry["checkpoint_hash"], entry["state_hash"]) == (own.checkpoint_hash, own.state_hash)
    assert (entry["origin"], entry["exact"], entry["latest"]) == ("server", True, True)
    assert entry["frontier"] == {"mac": 6, "my phone": 6}
    latest = await client.get(f"/sync/{scope}/checkpoints/latest")
    assert latest.content == checkpoint_text(log)
    devices[0].say("later")
    await devices[0].push()
    fresh = device("tablet")
    checkpoint = read_checkpoint(orjson.loads(latest.content))
    tail = [read_op(text) for text in op_texts(await fresh.pull(entry["frontier"]))]
    assert checkpoint_onto(checkpoint, tail).state_hash == state_hash(fold(log_of(devices)))


async def test_made_again_it_is_the_same_and_a_devices_own_stays(devices: list[Device], scope: str) -> None:
    client = devices[0].client
    read(await client.put(f"/sync/{scope}/checkpoints", content=checkpoint_text(log_of(devices))))
    assert await make(client, scope) == await make(client, scope)
    (entry,) = await listed(client, scope)
    assert entry["origin"] == "device"
    assert read(await client.put(f"/sync/{scope}/checkpoints", content=checkpoint_text(log_of(devices)))) is False


async def test_one_of_an_empty_scope_is_legal_and_of_a_sealed_scope_there_is_none(
    admin: httpx.AsyncClient, scope: str
) -> None:
    assert (await make(admin, scope))["checkpoint_hash"] == checkpoint_from_ops([]).checkpoint_hash
    sealing = Device(admin, scope + "_sealed", "mac")
    sealing.write("conversation", envelope())
    await sealing.push()
    refused(await admin.post(f"/v1/scopes/{sealing.scope}/checkpoints"), "sealed_scope", 409)


@pytest.mark.parametrize("role", ["device", "executor", "reader"])
async def test_only_an_admin_has_one_made(client_of: ClientOf, devices: list[Device], role: str) -> None:
    scope = devices[0].scope
    refused(await (await client_of(role, scope)).post(f"/v1/scopes/{scope}/checkpoints"), "forbidden")


def lines_of(response: httpx.Response) -> list[Any]:
    assert response.headers["content-type"] == "application/x-ndjson"
    return [orjson.loads(line) for line in response.content.splitlines()]


async def test_as_lines_a_reader_begins_with_it_and_goes_on_by_its_cursor(devices: list[Device], scope: str) -> None:
    client, log = devices[0].client, log_of(devices)
    entry = await make(client, scope)
    devices[0].say("later")
    await devices[0].push()
    response = await client.get(f"/v1/scopes/{scope}/checkpoints/{entry['checkpoint_hash']}", headers=NDJSON)
    head, *lines, last = lines_of(response)
    own = checkpoint_from_ops(log)
    assert head == {
        "checkpoint_hash": own.checkpoint_hash, "state_hash": own.state_hash, "scopes": own.scopes,
        "frontier": {device: covered.to_json() for device, covered in own.frontier.items()},
        "cursor": entry["cursor"],
    }  # fmt: skip
    assert last == {"lines": len(lines)}
    assert told(lines) == expected(own.state)
    page = read(await client.get(f"/v1/scopes/{scope}/ops", params={"cursor": head["cursor"]}))
    assert [op["op_id"] for op in page["ops"]] == [devices[0].ops[-1].op_id]
    assert page["caught_up"]


def told(lines: list[dict[str, Any]]) -> set[bytes]:
    return {orjson.dumps(line, option=orjson.OPT_SORT_KEYS) for line in lines}


def expected(state: SyncState) -> set[bytes]:
    lines: list[dict[str, Any]] = []
    for tag, entries in state.logs.items():
        lines += [{"log": tag, "key": key, "record": record.to_json()} for key, record in entries.items()]
    for tag, entries in state.registries.items():
        kind = tag.removeprefix("registry:")
        lines += [{"registry": kind, "key": key, "record": record.to_json()} for key, record in entries.items()]
    for agent, one in state.intents.items():
        lines.append({"agent": agent, "fencing_epoch": one.fencing_epoch})
        for view, entries in (("runs", one.runs), ("committed_runs", one.committed_runs)):
            for key, record in entries.items():
                lines.append({"agent": agent, "view": view, "key": key, "record": record.to_json()})
    return told(lines)


async def test_the_last_three_are_kept_and_of_the_others_is_known_that_they_were(mac: Device, scope: str) -> None:
    """R32, R33: texts do not pile up; a download that was begun gets one clean 410 and a newer checkpoint."""
    client, made = mac.client, []
    for _ in range(5):
        mac.facts(1)
        await mac.push()
        made.append(await make(client, scope))
    assert [e["checkpoint_hash"] for e in await listed(client, scope)] == [e["checkpoint_hash"] for e in made[:1:-1]]
    gone = await client.get(
        f"/v1/scopes/{scope}/checkpoints/{made[0]['checkpoint_hash']}", headers={"range": "bytes=9-"}
    )
    problem = refused(gone, "cursor_gone")
    assert (problem["checkpoint"], problem["cursor"]) == (made[-1]["checkpoint_hash"], made[-1]["cursor"])
    assert gone.headers["cache-control"] == "no-store"
    refused(await client.get(f"/v1/scopes/{scope}/checkpoints/ckpt-{'0' * 32}"), "not_found")


async def test_what_a_device_published_counts_after_its_text_went(mac: Device, scope: str) -> None:
    """The crate's coverage and its `false` for what is stored do not depend on what we keep."""
    first = checkpoint_text(mac.ops[:1])
    read(await mac.client.put(f"/sync/{scope}/checkpoints", content=first))
    for _ in range(4):
        mac.facts(1)
        await mac.push()
        await make(mac.client, scope)
    assert read(await mac.client.put(f"/sync/{scope}/checkpoints", content=first)) is False
    assert all(entry["origin"] == "server" for entry in await listed(mac.client, scope))


@pytest.fixture
async def mac(device: NewDevice) -> Device:
    mac = device("mac")
    mac.facts(3)
    return await mac.push()


async def test_R32_they_are_made_unasked_and_their_size_grows_with_the_state_alone(
    start_server: Callable[..., RunningServer], database_url: str, scope: str
) -> None:
    """One after max(checkpoint_every, records) ops: all that were ever written are a few times the state."""
    server = start_server(checkpoint_every="50")
    async with server.client() as client:
        mac = Device(client, scope, "mac")
        written = 0
        while len(mac.ops) < 1_600:
            for _ in range(50):
                mac.say("what was said " * 5)
            await mac.push()
            if len(mac.ops) in (50, 100, 200, 400, 800, 1_600):
                written += await size_of_one_at(client, scope, len(mac.ops))
        kept = await listed(client, scope)
        whole = len(read_bytes(await client.get(f"/v1/scopes/{scope}/state")))
        assert len(kept) <= 4
        assert written < 2.5 * whole
        assert kept[0]["state_hash"] == state_hash(fold(mac.ops))
    connection = await asyncpg.connect(database_url)
    stored = await connection.fetchval("select count(distinct checkpoint) from checkpoint_chunk")
    await connection.close()
    assert stored == len(kept)


async def size_of_one_at(client: httpx.AsyncClient, scope: str, ops: int) -> int:
    """Wait for the checkpoint that is due at so many ops."""

    async def is_made() -> bool:
        return [entry["frontier"] for entry in (await listed(client, scope))[:1]] == [{"mac": ops - 1}]

    await until(is_made)
    return int((await listed(client, scope))[0]["size"])


def read_bytes(response: httpx.Response) -> bytes:
    assert response.status_code == 200
    return response.content
