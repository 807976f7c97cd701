"""Every failure has the one body of server.md §12, and every response its request id and the server epoch."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import asyncpg
import httpx
import pytest

from app.problems import ADVICE, CODES
from app.services.reading.cursors import decode, encode
from foldpoint.checkpoint import checkpoint_from_ops, make_checkpoint
from foldpoint.op import make_op
from foldpoint.state import SyncState
from tests.fixtures.database import fresh_database
from tests.fixtures.devices import Device, NewDevice, checkpoint_text, collect, envelope
from tests.fixtures.ledgers import STARTED, Ledgers, called, numbered, record
from tests.fixtures.server import RunningServer, running_server
from tests.wire.answers import read, refused
from tests.wire.one_connection import connected

#: Codes that nothing gives yet.
LATER = {"stale_epoch": "gated intents of hosted devices", "rate_limited": "limits on how often one may ask"}
BLOCKED = "select pid from pg_stat_activity where $1 = any(pg_blocking_pids(pid))"
FAR = 2**62

Produce = Callable[[Device], Awaitable[httpx.Response]]


async def get(mac: Device, path: str, **params: Any) -> httpx.Response:
    return await mac.client.get(f"/v1/scopes/{mac.scope}{path}", params=params)


async def put(mac: Device, text: bytes) -> httpx.Response:
    return await mac.client.put(f"/sync/{mac.scope}/checkpoints", content=text)


async def forked(mac: Device) -> httpx.Response:
    copy = Device(mac.client, mac.scope, "mac")
    copy.write("knowledge", {"id": "other"})
    return await copy.offer(copy.ops)


async def unlinked(mac: Device) -> httpx.Response:
    (op,) = mac.facts(1)
    return await mac.offer([make_op("mac", op.seq, "op-" + "0" * 32, op.hlc, op.scope, op.surface, op.payload)])


async def skewed(mac: Device) -> httpx.Response:
    mac.wall_ms = FAR
    return await mac.offer(mac.facts(1))


async def truncated(mac: Device) -> httpx.Response:
    await collect([mac])
    return await mac.pull()


async def renamed_checkpoint(mac: Device) -> httpx.Response:
    text = checkpoint_text(mac.ops)
    hash_ = checkpoint_from_ops(mac.ops).checkpoint_hash
    return await put(mac, text.replace(hash_.encode(), b"ckpt-" + b"0" * 32))


async def false_state(mac: Device) -> httpx.Response:
    own = checkpoint_from_ops(mac.ops)
    return await put(mac, b"".join(make_checkpoint(own.frontier, own.scopes, SyncState()).pieces()))


async def sealed(mac: Device) -> httpx.Response:
    other = Device(mac.client, mac.scope + "-sealed", "mac")
    other.write("knowledge", envelope())
    await other.push()
    return await other.offer(other.facts(1))


async def wrong_key(mac: Device) -> httpx.Response:
    other = Device(mac.client, mac.scope + "-sealed", "mac")
    other.write("knowledge", envelope())
    await other.push()
    keys = {"audiences": {"personal": "00" * 32}}
    return await mac.client.put(f"/v1/scopes/{other.scope}/keys", json=keys)


async def lease(mac: Device, verb: str, **body: Any) -> httpx.Response:
    url = f"/v1/scopes/{mac.scope}/leases/{verb}"
    return await mac.client.post(url, json={"agent_id": "ada", "device_id": "mac", **body})


async def held(mac: Device) -> httpx.Response:
    read(await lease(mac, "acquire", ttl_ms=3_600_000))
    return await lease(mac, "acquire", ttl_ms=1)


async def exhausted(mac: Device) -> httpx.Response:
    mac.intend("r", "pending", epoch=2**64 - 1)
    await mac.push()
    return await lease(mac, "acquire", ttl_ms=1)


async def unsealable(mac: Device) -> httpx.Response:
    """A seal of a record that does not win."""
    ledgers = Ledgers(mac.client, mac.scope)
    read(await ledgers.append(*numbered(called())))
    read(await ledgers.acquire())
    return await ledgers.append(record(9, STARTED), epoch=1, seal=True)


async def restored(mac: Device) -> httpx.Response:
    _, *rest = decode(read(await get(mac, "/ops"))["cursor"])
    return await get(mac, "/ops", cursor=encode(["0" * 32, *rest]))


async def collected(mac: Device) -> httpx.Response:
    await collect([mac])
    return await get(mac, "/state", at='{"mac":0}')


async def with_token(mac: Device, token: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"}
    return await mac.client.get(f"/v1/scopes/{mac.scope}/", headers=headers)


PRODUCED: dict[str, Produce] = {
    "chain_fork": forked,
    "gap": lambda mac: mac.offer(mac.facts(2)[1:]),
    "chain_broken": unlinked,
    "foreign_ops": lambda mac: mac.offer(Device(mac.client, mac.scope, "phone").facts(1)),
    "reserved_device": lambda mac: mac.client.post(f"/sync/{mac.scope}/devices/hosted-x"),
    "frontier_truncated": truncated,
    "unreadable_op": lambda mac: mac.client.post(f"{mac.path}/ops", content=b"[7]"),
    "invalid_request": lambda mac: mac.client.post(f"{mac.path}/ops", content=b"{}"),
    "clock_skew": skewed,
    "checkpoint_invalid": renamed_checkpoint,
    "checkpoint_unverified": lambda mac: put(mac, checkpoint_text([*mac.ops, *mac.facts(1)])),
    "checkpoint_state_mismatch": false_state,
    "plain_scope": lambda mac: mac.offer([mac.write("knowledge", envelope())]),
    "sealed_scope": sealed,
    "wrong_key": wrong_key,
    "lease_held": held,
    "lease_lost": lambda mac: lease(mac, "release", epoch=1),
    "epoch_exhausted": exhausted,
    "seal_mismatch": unsealable,
    "invalid_cursor": lambda mac: get(mac, "/ops", cursor="x"),
    "cursor_gone": lambda mac: get(mac, "/ops", cursor=encode([mac.client.headers["epoch"], 2**30, {}])),
    "server_restored": restored,
    "frontier_collected": collected,
    "unauthorized": lambda mac: with_token(mac, "nobody"),
    "not_found": lambda mac: get(mac, "/checkpoints/ckpt-0"),
}


@pytest.fixture
async def mac(device: NewDevice, database: asyncpg.Connection) -> Device:
    mac = device("mac")
    mac.facts(3)
    mac.client.headers["epoch"] = await database.fetchval("select epoch from server")
    return await mac.push()


@pytest.mark.parametrize("code", PRODUCED)
async def test_each_code_comes_in_the_same_shape(mac: Device, code: str) -> None:
    response = await PRODUCED[code](mac)
    problem = refused(response, code)
    own_type = code == "frontier_truncated"
    assert problem["type"].startswith("https://parslee.ai/" if own_type else f"about:blank#{code}")
    assert problem["title"] == code.replace("_", " ")
    assert problem.get("advice") == ADVICE.get(code)
    assert ("retry-after" in response.headers) is (code == "unavailable")
    assert (response.headers.get("cache-control") == "no-store") is (CODES[code] == 410)
    assert_has_its_headers(response, mac.client.headers["epoch"])


def assert_has_its_headers(response: httpx.Response, epoch: str) -> None:
    assert len(response.headers["x-request-id"]) == 16
    assert response.headers["foldpoint-epoch"] == epoch


async def test_every_response_has_a_request_id_of_its_own_and_the_server_epoch(mac: Device) -> None:
    client, base = mac.client, f"/v1/scopes/{mac.scope}"
    await put(mac, checkpoint_text(mac.ops))
    (stored,) = read(await client.get(f"{base}/checkpoints"))["checkpoints"]
    etag = f'"{stored["checkpoint_hash"]}"'
    responses = [
        await client.get("/healthz"),
        await client.get("/readyz"),
        await client.get("/docs"),
        await client.get("/openapi.json"),
        await client.get("/nowhere"),
        await client.patch("/healthz"),
        await client.options(base),
        await client.get(f"{base}/state"),
        await client.get(f"{base}/ops", headers={"Accept": "application/x-ndjson"}),
        await client.get(f"{base}/ops", params={"limit": "x"}),
        await client.get(f"{base}/checkpoints/{stored['checkpoint_hash']}", headers={"If-None-Match": etag}),
        await mac.pull(),
        await mac.offer([]),
    ]
    for response in responses:
        assert_has_its_headers(response, client.headers["epoch"])
    assert len({response.headers["x-request-id"] for response in responses}) == len(responses)
    assert {response.status_code for response in responses} == {200, 304, 404, 405, 422}


async def test_what_the_framework_refuses_has_the_same_shape(mac: Device) -> None:
    refused(await mac.client.get("/nowhere"), "not_found")
    refused(await mac.client.get(f"/sync/{mac.scope}/devices//ops"), "not_found")
    refused(await mac.client.patch("/healthz"), "invalid_request", status=405)
    problem = refused(await get(mac, "/ops", limit="x"), "invalid_request")
    assert problem["path"] == "query.limit"


async def test_a_lost_connection_to_the_database_is_503_and_the_retry_succeeds(
    mac: Device, server: RunningServer, database: asyncpg.Connection
) -> None:
    """The push waits for the scope's lock when its connection is cut."""
    async with database.transaction():
        await database.execute("select from scope where slug = $1 for update", mac.scope)
        pushing = asyncio.create_task(mac.offer(mac.facts(1)))
        own = await database.fetchval("select pg_backend_pid()")
        observer = await asyncpg.connect(server.database_url)
        while (pid := await observer.fetchval(BLOCKED, own)) is None:
            assert not pushing.done()
        await observer.execute("select pg_terminate_backend($1)", pid)
        await observer.close()
        response = await pushing
    problem = refused(response, "unavailable")
    assert response.headers["retry-after"] == "1"
    assert problem["advice"]
    assert_has_its_headers(response, mac.client.headers["epoch"])
    assert read(await mac.offer(mac.ops)) == {"accepted": 1, "deduped": 3}


@pytest.fixture(scope="module")
def broken(database_server: str, migrated_template: str) -> Iterator[RunningServer]:
    """A server that takes little, on a database whose conversations and leases are not there."""
    with (
        fresh_database(database_server, migrated_template) as url,
        running_server(url, max_body_bytes="4096", max_ops_per_request="1") as server,
    ):
        asyncio.run(damage(url))
        yield server


async def damage(url: str) -> None:
    database = await asyncpg.connect(url)
    for change in (
        "alter table stream rename to gone",
        "alter table lease rename to gone_too",
        "update alembic_version set version_num = 'ffff'",
    ):
        await database.execute(change)
    await database.close()


@pytest.fixture
async def client(broken: RunningServer) -> AsyncIterator[httpx.AsyncClient]:
    async with broken.client() as client:
        read(await client.post("/sync/s/devices/mac/ops", content=b"[]"))
        yield client


ON_BROKEN: dict[str, Callable[[httpx.AsyncClient], Awaitable[httpx.Response]]] = {
    "too_large": lambda client: client.post("/sync/s/devices/mac/ops", content=b" " * 4097),
    "too_many_ops": lambda client: client.post("/sync/s/devices/mac/ops", content=b"[1,2]"),
    "unavailable": lambda client: client.get("/readyz"),
    "internal": lambda client: client.get("/v1/scopes/s/conversations"),
}


@pytest.mark.parametrize("code", ON_BROKEN)
async def test_codes_of_limits_and_failures_come_in_the_same_shape(client: httpx.AsyncClient, code: str) -> None:
    response = await ON_BROKEN[code](client)
    problem = refused(response, code)
    assert problem["type"] == f"about:blank#{code}"
    assert problem.get("advice") == ADVICE.get(code)
    assert ("retry-after" in response.headers) is (code == "unavailable")
    assert_has_its_headers(response, response.headers["foldpoint-epoch"])


@pytest.mark.parametrize("path", ["conversations", "leases?agent=ada"])
async def test_a_fault_of_ours_is_500_with_the_request_id_and_nothing_of_the_database(
    client: httpx.AsyncClient, path: str
) -> None:
    """On both ways to the database."""
    response = await client.get(f"/v1/scopes/s/{path}")
    problem = refused(response, "internal")
    assert problem["request_id"] == response.headers["x-request-id"]
    assert problem["detail"] == "the server failed"
    for word in ("gone", "stream", "lease", "asyncpg", "select"):
        assert word not in response.text


async def test_after_a_fault_of_ours_the_connection_goes_on(broken: RunningServer, client: httpx.AsyncClient) -> None:
    read(await client.get("/healthz"))
    async with connected(broken) as connection:
        for _ in range(2):
            assert b" 500 " in await connection.ask("GET /v1/scopes/s/conversations")
        assert b" 200 " in await connection.ask("GET /healthz")


def test_every_code_that_can_occur_is_produced_here() -> None:
    """`forbidden` is produced for every route in test_access.py."""
    assert CODES.keys() - LATER.keys() == {*PRODUCED, *ON_BROKEN, "forbidden"}
