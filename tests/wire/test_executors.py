"""What an executor asks before a side effect: fence, lease, agent (server.md §6, §11; car-sync.md §13.3)."""

from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from tests.fixtures.devices import NewDevice
from tests.wire.answers import read, refused

HOUR_MS = 3_600_000
Call = Callable[..., Awaitable[httpx.Response]]


@pytest.fixture
async def lease(admin: httpx.AsyncClient, scope: str) -> Call:
    """Call a lease route for the agent "ada/1", in a scope that exists."""
    read(await admin.post(f"/sync/{scope}/devices/mac/ops", content=b"[]"))

    async def call(verb: str, **body: Any) -> httpx.Response:
        url = f"/v1/scopes/{scope}/leases"
        if verb == "current":
            return await admin.get(url, params={"agent": "ada/1"})
        return await admin.post(f"{url}/{verb}", json={"agent_id": "ada/1", **body})

    return call


async def test_a_lease_goes_round_and_refusals_are_errors_here(lease: Call) -> None:
    assert read(await lease("current")) == {"lease": None, "remaining_ms": 0}
    granted = read(await lease("acquire", device_id="mac", ttl_ms=HOUR_MS))
    mine = {"agent_id": "ada/1", "holder": "mac", "epoch": 1, "expires_at_ms": granted["lease"]["expires_at_ms"]}
    assert granted == {"lease": mine, "remaining_ms": HOUR_MS}
    current = read(await lease("current"))
    assert current["lease"] == mine
    assert 0 < current["remaining_ms"] <= HOUR_MS
    for device in ("phone", "mac"):
        held = refused(await lease("acquire", device_id=device, ttl_ms=1), "lease_held")
        assert (held["holder"], held["epoch"]) == ("mac", 1)
        assert 0 < held["remaining_ms"] <= HOUR_MS
    renewed = read(await lease("renew", device_id="mac", epoch=1, ttl_ms=2 * HOUR_MS))
    assert (renewed["lease"]["epoch"], renewed["remaining_ms"]) == (1, 2 * HOUR_MS)
    for verb, more in (("renew", {"ttl_ms": 1}), ("release", {})):
        for device, epoch in (("mac", 2), ("phone", 1), ("mac", 0)):
            lost = refused(await lease(verb, device_id=device, epoch=epoch, **more), "lease_lost")
            assert (lost["claimed_epoch"], lost["current_epoch"]) == (epoch, 1)
    assert read(await lease("release", device_id="mac", epoch=1)) == {"lease": None, "remaining_ms": 0}
    assert refused(await lease("release", device_id="mac", epoch=1), "lease_lost")["current_epoch"] == 1
    assert read(await lease("acquire", device_id="phone", ttl_ms=0))["lease"]["epoch"] == 2
    assert read(await lease("current"))["remaining_ms"] == 0
    assert read(await lease("acquire", device_id="mac", ttl_ms=0))["lease"]["epoch"] == 3


async def test_both_apis_see_one_register(lease: Call, admin: httpx.AsyncClient, scope: str) -> None:
    read(await lease("acquire", device_id="mac", ttl_ms=HOUR_MS))
    wire = f"/sync/{scope}/leases/ada_1"
    assert read(await admin.get(wire))["Current"]["holder"] == "mac"
    assert read(await admin.post(f"{wire}/release", json={"device_id": "mac", "epoch": 1})) == "Released"
    assert read(await lease("current"))["lease"] is None


@pytest.mark.parametrize(
    "fault", [{"ttl_ms": 1.0}, {"ttl_ms": "1"}, {"ttl_ms": 2**64}, {"device_id": 7}, {"agent_id": None}]
)
async def test_lease_bodies_are_read_strictly(lease: Call, fault: dict[str, Any]) -> None:
    refused(await lease("acquire", **{"device_id": "mac", "ttl_ms": 1, **fault}), "invalid_request")


async def test_an_agent_is_its_fence_and_its_lease(
    lease: Call, device: NewDevice, admin: httpx.AsyncClient, scope: str
) -> None:
    url = f"/v1/scopes/{scope}/agents"
    unknown = {"agent_id": "ada/1", "fencing_epoch": None, "lease": None}
    assert read(await admin.get(url, params={"agent": "ada/1"})) == unknown
    mac = device("mac")
    mac.intend("r", "pending", epoch=2**64 - 1, agent="max")
    mac.intend("r", "pending", epoch=3, agent="ada/1")
    mac.intend("r", "committed", epoch=2, agent="ada/1")
    mac.write("intent", {"agent_id": "loose", "epoch": 7.0})
    await mac.push()
    granted = read(await lease("acquire", device_id="mac", ttl_ms=0))["lease"]
    assert granted["epoch"] == 4
    assert read(await admin.get(url, params={"agent": "ada/1"})) == {
        "agent_id": "ada/1", "fencing_epoch": 3, "lease": granted,
    }  # fmt: skip
    assert read(await admin.get(url, params={"agent": "max"}))["fencing_epoch"] == 2**64 - 1
    assert read(await admin.get(url, params={"agent": "loose"}))["fencing_epoch"] == 0


async def test_the_fence_decides_by_the_first_row_that_matches(
    lease: Call, device: NewDevice, admin: httpx.AsyncClient, scope: str
) -> None:
    async def fence(run: str = "r", device: str = "mac", epoch: int = 1) -> Any:
        body = {"agent_id": "ada/1", "run_id": run, "device_id": device, "epoch": epoch}
        return read(await admin.post(f"/v1/scopes/{scope}/fence", json=body))

    assert await fence() == {"decision": "not_held", "claimed_epoch": 1, "may_dispatch": False}
    assert await fence(epoch=2**64 - 1) == {
        "decision": "not_held", "claimed_epoch": 2**64 - 1, "may_dispatch": False,
    }  # fmt: skip
    read(await lease("acquire", device_id="mac", ttl_ms=0))
    assert await fence() == {"decision": "proceed", "may_dispatch": True}
    stale = {"decision": "stale_epoch", "current_epoch": 1, "current_holder": "mac", "may_dispatch": False}
    assert await fence(epoch=0) == {**stale, "claimed_epoch": 0}
    assert await fence(epoch=2) == {**stale, "claimed_epoch": 2}
    assert await fence(device="phone") == {**stale, "claimed_epoch": 1}
    mac = device("mac")
    committed, _ = mac.intend("r", "committed", agent="ada/1"), mac.intend("failed", "failed", agent="ada/1")
    await mac.push()
    already = {"decision": "already_committed", "committed_op_id": committed.op_id, "may_dispatch": False}
    assert await fence() == already
    assert await fence(epoch=9, device="phone") == already
    assert (await fence("failed"))["decision"] == "proceed"
    read(await lease("release", device_id="mac", epoch=1))
    assert await fence() == already
    assert (await fence("failed"))["decision"] == "not_held"


@pytest.mark.parametrize("fault", [{"epoch": -1}, {"epoch": 1.0}, {"epoch": "1"}, {"epoch": 2**64}, {"run_id": None}])
async def test_fence_bodies_are_read_strictly(
    lease: Call, admin: httpx.AsyncClient, scope: str, fault: dict[str, Any]
) -> None:
    assert read(await lease("current"))
    body = {"agent_id": "ada", "run_id": "r", "device_id": "mac", "epoch": 1, **fault}
    refused(await admin.post(f"/v1/scopes/{scope}/fence", json=body), "invalid_request")


async def test_the_oracle_names_the_commit_of_the_highest_epoch(
    device: NewDevice, admin: httpx.AsyncClient, scope: str
) -> None:
    mac = device("mac")
    high = mac.intend("r", "committed", epoch=5)
    mac.intend("r", "committed", epoch=4)
    await mac.push()
    body = {"agent_id": "ada", "run_id": "r", "device_id": "mac", "epoch": 1}
    assert read(await admin.post(f"/v1/scopes/{scope}/fence", json=body))["committed_op_id"] == high.op_id
