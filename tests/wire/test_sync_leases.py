"""Leases on the device wire (car-sync.md §12.2, §13.1): Held and Lost are 200 bodies."""

from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import httpx
import pytest

from tests.fixtures.devices import NewDevice
from tests.wire.answers import read, refused

Lease = Callable[..., Awaitable[Any]]
HOUR_MS = 3_600_000
CLOCK = "select (extract(epoch from clock_timestamp()) * 1000)::bigint"
EXPIRE = "update lease l set expires_at_ms = $2 from scope s where s.id = l.scope and s.slug = $1"


@pytest.fixture
def lease(admin: httpx.AsyncClient, scope: str) -> Lease:
    async def call(verb: str, agent: str = "ada", **body: Any) -> Any:
        if verb == "current":
            return read(await admin.get(f"/sync/{scope}/leases/{agent}"))
        return read(await admin.post(f"/sync/{scope}/leases/{agent}/{verb}", json=body))

    return call


async def test_a_lease_goes_round(lease: Lease) -> None:
    assert await lease("current") == {"Current": None}
    granted = await lease("acquire", device_id="mac", ttl_ms=HOUR_MS)
    expires = granted["Granted"]["expires_at_ms"]
    mine = {"agent_id": "ada", "holder": "mac", "epoch": 1, "expires_at_ms": expires}
    assert granted == {"Granted": mine}
    assert await lease("current") == {"Current": mine}
    held = {"Held": {"holder": "mac", "epoch": 1, "expires_at_ms": expires}}
    assert await lease("acquire", device_id="phone", ttl_ms=1) == held
    assert await lease("acquire", device_id="mac", ttl_ms=1) == held
    renewed = await lease("renew", device_id="mac", epoch=1, ttl_ms=HOUR_MS // 2)
    assert renewed["Granted"] == {**mine, "expires_at_ms": renewed["Granted"]["expires_at_ms"]}
    assert renewed["Granted"]["expires_at_ms"] < expires
    lost = {"Lost": {"claimed_epoch": 7, "current_epoch": 1}}
    assert await lease("renew", device_id="mac", epoch=7, ttl_ms=1) == lost
    assert await lease("release", device_id="phone", epoch=1) == {"Lost": {"claimed_epoch": 1, "current_epoch": 1}}
    assert await lease("release", device_id="mac", epoch=1) == "Released"
    assert await lease("release", device_id="mac", epoch=1) == {"Lost": {"claimed_epoch": 1, "current_epoch": 1}}
    assert await lease("current") == {"Current": None}
    assert (await lease("acquire", device_id="phone", ttl_ms=1))["Granted"]["epoch"] == 2


async def test_what_was_never_held_is_lost_at_epoch_0(lease: Lease) -> None:
    assert await lease("renew", device_id="mac", epoch=1, ttl_ms=1) == {
        "Lost": {"claimed_epoch": 1, "current_epoch": 0}
    }


async def test_an_expired_lease_can_be_stolen_and_is_renewed_if_nobody_did(lease: Lease) -> None:
    await lease("acquire", device_id="mac", ttl_ms=0)
    assert (await lease("current"))["Current"]["holder"] == "mac"
    assert (await lease("renew", device_id="mac", epoch=1, ttl_ms=0))["Granted"]["epoch"] == 1
    assert (await lease("acquire", device_id="phone", ttl_ms=HOUR_MS))["Granted"]["epoch"] == 2
    assert await lease("renew", device_id="mac", epoch=1, ttl_ms=HOUR_MS) == {
        "Lost": {"claimed_epoch": 1, "current_epoch": 2}
    }


async def test_expiry_is_judged_by_the_database_clock(lease: Lease, scope: str, database: asyncpg.Connection) -> None:
    await lease("acquire", device_id="mac", ttl_ms=HOUR_MS)
    await database.execute(EXPIRE, scope, await database.fetchval(CLOCK) + HOUR_MS)
    assert "Held" in await lease("acquire", device_id="phone", ttl_ms=1)
    await database.execute(EXPIRE, scope, await database.fetchval(CLOCK))
    assert "Granted" in await lease("acquire", device_id="phone", ttl_ms=1)


@pytest.mark.parametrize("ttl_ms", [24 * HOUR_MS + 1, 2**64 - 1])
async def test_a_lease_lasts_at_most_a_day(lease: Lease, database: asyncpg.Connection, ttl_ms: int) -> None:
    for granted in (
        await lease("acquire", device_id="mac", ttl_ms=ttl_ms),
        await lease("renew", device_id="mac", epoch=1, ttl_ms=ttl_ms),
    ):
        now_ms = await database.fetchval(CLOCK)
        assert 23 * HOUR_MS < granted["Granted"]["expires_at_ms"] - now_ms <= 24 * HOUR_MS


async def test_the_register_is_keyed_by_the_slug_and_answers_the_callers_spelling(
    lease: Lease, admin: httpx.AsyncClient, scope: str
) -> None:
    """The wire only has the slug; `/v1` knows the agent's name."""
    url = f"/v1/scopes/{scope}/leases"
    body = {"agent_id": "ada@home", "device_id": "mac", "ttl_ms": HOUR_MS}
    granted = read(await admin.post(f"{url}/acquire", json=body))
    assert granted["lease"]["agent_id"] == "ada@home"
    held = await lease("acquire", agent="ada_home", device_id="phone", ttl_ms=1)
    assert held["Held"]["holder"] == "mac"
    assert (await lease("current", agent="ada_home"))["Current"]["agent_id"] == "ada_home"
    assert read(await admin.get(url, params={"agent": "ada!home"}))["lease"]["agent_id"] == "ada!home"


async def test_a_grant_is_above_every_fence_of_agents_with_this_slug(device: NewDevice, lease: Lease) -> None:
    mac = device("mac")
    mac.intend("r", "pending", epoch=7, agent="ada home")
    mac.intend("r", "pending", epoch=41, agent="ada@home")
    mac.intend("r", "pending", epoch=90, agent="other")
    await mac.push()
    assert (await lease("acquire", agent="ada_home", device_id="mac", ttl_ms=0))["Granted"]["epoch"] == 42
    assert (await lease("acquire", agent="ada_home", device_id="mac", ttl_ms=0))["Granted"]["epoch"] == 43
    mac.intend("r", "pending", epoch=60, agent="ada home")
    await mac.push()
    assert (await lease("acquire", agent="ada_home", device_id="mac", ttl_ms=0))["Granted"]["epoch"] == 61


async def test_a_grant_is_above_the_floor_of_the_database(lease: Lease, database: asyncpg.Connection) -> None:
    floor = await database.fetchval("select lease_floor from server")
    await database.execute("update server set lease_floor = 1048576")
    try:
        for epoch in (1_048_577, 1_048_578):
            assert (await lease("acquire", device_id="mac", ttl_ms=0))["Granted"]["epoch"] == epoch
    finally:
        await database.execute("update server set lease_floor = $1", floor)


@pytest.mark.parametrize("epoch", [2**63 - 1, 2**63, 2**64 - 1])
async def test_a_fence_without_room_above_it_is_epoch_exhausted(
    device: NewDevice, lease: Lease, scope: str, epoch: int
) -> None:
    mac = device("mac")
    mac.intend("r", "pending", epoch=epoch)
    await mac.push()
    for url in (f"/sync/{scope}/leases/ada/acquire", f"/v1/scopes/{scope}/leases/acquire"):
        body = {"agent_id": "ada", "device_id": "mac", "ttl_ms": 1}
        problem = refused(await mac.client.post(url, json=body), "epoch_exhausted")
        assert (problem["agent_id"], problem["claimed_epoch"], problem["claimed_by"]) == ("ada", epoch, "ada")
    assert await lease("current") == {"Current": None}
    assert "Granted" in await lease("acquire", agent="bob", device_id="mac", ttl_ms=1)


async def test_an_empty_agent_is_no_path(admin: httpx.AsyncClient, scope: str) -> None:
    for verb, body in (
        ("acquire", {"device_id": "mac", "ttl_ms": 1}),
        ("renew", {"device_id": "mac", "epoch": 1, "ttl_ms": 1}),
        ("release", {"device_id": "mac", "epoch": 1}),
    ):
        refused(await admin.post(f"/sync/{scope}/leases//{verb}", json=body), "not_found")
    refused(await admin.get(f"/sync/{scope}/leases/"), "not_found")


FAULTS = {
    "no device": {"ttl_ms": 1, "epoch": 1},
    "a float": {"device_id": "mac", "ttl_ms": 1.0, "epoch": 1.5},
    "a string": {"device_id": "mac", "ttl_ms": "1", "epoch": "1"},
    "true": {"device_id": "mac", "ttl_ms": True, "epoch": True},
    "2^64": {"device_id": "mac", "ttl_ms": 2**64, "epoch": 2**64},
    "a negative": {"device_id": "mac", "ttl_ms": -1, "epoch": -1},
    "a number for a device": {"device_id": 7, "ttl_ms": 1, "epoch": 1},
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("verb", ["acquire", "renew", "release"])
async def test_bodies_are_read_strictly(admin: httpx.AsyncClient, scope: str, verb: str, fault: str) -> None:
    refused(await admin.post(f"/sync/{scope}/leases/ada/{verb}", json=FAULTS[fault]), "invalid_request")


@pytest.mark.parametrize(
    "body",
    [
        b'{"device_id":"\\ud800","ttl_ms":1}', b'{"device_id":"mac","ttl_ms":NaN}', b"{", b"[]", b"",
        b'{"device_id":"\xff","ttl_ms":1}', b"[" * 100_000,
    ],
)  # fmt: skip
async def test_what_is_no_json_object_is_an_invalid_request(admin: httpx.AsyncClient, scope: str, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    refused(await admin.post(f"/sync/{scope}/leases/ada/acquire", content=body, headers=headers), "invalid_request")


async def test_a_body_that_does_not_say_it_is_json_is_refused_with_a_hint(admin: httpx.AsyncClient, scope: str) -> None:
    """What curl sends unless it is told otherwise."""
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    body = b'{"device_id":"mac","ttl_ms":1}'
    response = await admin.post(f"/sync/{scope}/leases/ada/acquire", content=body, headers=headers)
    assert "Content-Type: application/json" in refused(response, "invalid_request")["detail"]


@pytest.mark.parametrize("holder", ["", "\0", "x" * 65_536, "mac/😀"])
async def test_a_holder_may_be_any_string(lease: Lease, holder: str) -> None:
    assert (await lease("acquire", device_id=holder, ttl_ms=HOUR_MS))["Granted"]["holder"] == holder
    assert await lease("release", device_id=holder, epoch=1) == "Released"
