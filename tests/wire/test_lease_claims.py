"""An intent that claims the last epoch ends all grants until an admin lets its claim go (server.md §6)."""

from typing import Any

import asyncpg
import httpx
import pytest

from app.database import create_engine
from app.services.verification.verifying import verify
from tests.fixtures.devices import Device, NewDevice
from tests.fixtures.server import RunningServer
from tests.fixtures.tokens import issue_token
from tests.wire.answers import read, refused

LAST = 2**63 - 1
HOUR_MS = 3_600_000
RESETS = "select r.* from claim_reset r join scope s on s.id = r.scope where s.slug = $1"


async def acquire(mac: Device, agent: str = "ada", holder: str = "mac", ttl_ms: int = 0) -> httpx.Response:
    body = {"agent_id": agent, "device_id": holder, "ttl_ms": ttl_ms}
    return await mac.client.post(f"/v1/scopes/{mac.scope}/leases/acquire", json=body)


async def epoch_of(mac: Device, agent: str = "ada") -> int:
    return int(read(await acquire(mac, agent))["lease"]["epoch"])


async def claim(mac: Device, agent: str = "ada") -> Any:
    return read(await mac.client.get(f"/v1/scopes/{mac.scope}/leases/claim", params={"agent": agent}))


async def let_go(mac: Device, agent: str = "ada") -> httpx.Response:
    return await mac.client.delete(f"/v1/scopes/{mac.scope}/leases/claim", params={"agent": agent})


async def ask(mac: Device, path: str, **params: str) -> Any:
    return read(await mac.client.get(f"/v1/scopes/{mac.scope}/{path}", params={"agent": "ada", **params}))


@pytest.fixture
async def mac(device: NewDevice) -> Device:
    """A device whose agent held epochs 1 and 2, committed a run, and then claimed an epoch without room above it."""
    mac = device("mac")
    assert [await epoch_of(mac) for _ in range(2)] == [1, 2]
    mac.intend("done", "pending", epoch=2)
    mac.intend("done", "committed", epoch=2)
    mac.intend("wild", "pending", epoch=2**64 - 1)
    return await mac.push()


async def test_an_admin_sees_the_claim_and_lets_it_go(mac: Device) -> None:
    problem = refused(await acquire(mac), "epoch_exhausted")
    assert "leases/claim" in problem["advice"]
    made = {"epoch": 2**64 - 1, "claimed_by": "ada"}
    assert await claim(mac) == {"agent_id": "ada", "claim": made, "let_go": []}
    answer = read(await let_go(mac))
    assert (answer["claim"], len(answer["let_go"])) == (None, 1)
    assert await claim(mac) == answer
    assert [await epoch_of(mac) for _ in range(2)] == [3, 4]


async def test_what_was_committed_stays_and_the_fence_decides_as_before(mac: Device) -> None:
    read(await let_go(mac))
    granted = read(await acquire(mac, holder="phone", ttl_ms=HOUR_MS))["lease"]
    phone = Device(mac.client, mac.scope, "phone")
    phone.intend("next", "pending", epoch=granted["epoch"])
    await phone.push()
    assert (await ask(mac, "committed-run", run="done"))["status"] == "committed"
    assert (await ask(mac, "committed-run", run="next"))["status"] == "in_doubt"
    assert await ask(mac, "intent", run="next") == {"record": None}
    assert (await ask(mac, "agents"))["fencing_epoch"] == 2**64 - 1
    url, asked = f"/v1/scopes/{mac.scope}/fence", {"agent_id": "ada", "device_id": "phone", "epoch": granted["epoch"]}
    assert read(await mac.client.post(url, json={**asked, "run_id": "next"}))["decision"] == "proceed"
    assert read(await mac.client.post(url, json={**asked, "run_id": "done"}))["decision"] == "already_committed"
    late = {**asked, "run_id": "next", "device_id": "mac", "epoch": 2**64 - 1}
    assert read(await mac.client.post(url, json=late))["decision"] == "stale_epoch"
    phone.intend("next", "committed", epoch=granted["epoch"])
    await phone.push()
    assert (await ask(mac, "committed-runs"))["run_ids"] == ["done", "next"]


async def test_a_grant_still_passes_every_other_epoch_that_was_seen(mac: Device) -> None:
    """Also those below the claim, that a lost register gave, and those of agents with the same slug."""
    mac.intend("old", "pending", epoch=70, agent="a b")
    mac.intend("wild", "pending", epoch=LAST, agent="a b")
    mac.intend("old", "failed", epoch=90, agent="a@b")
    await mac.push()
    refused(await acquire(mac, "a b"), "epoch_exhausted")
    read(await let_go(mac, "a?b"))
    assert await epoch_of(mac, "a_b") == 91
    mac.intend("new", "pending", epoch=200, agent="a@b")
    await mac.push()
    assert await epoch_of(mac, "a b") == 201
    refused(await acquire(mac), "epoch_exhausted")


async def test_epochs_seen_below_the_claim_are_passed(mac: Device) -> None:
    mac.intend("old", "pending", epoch=500, agent="bob")
    mac.intend("wild", "pending", epoch=LAST, agent="bob")
    await mac.push()
    read(await let_go(mac, "bob"))
    assert await epoch_of(mac, "bob") == 501


async def test_epochs_committed_below_the_claim_are_passed(mac: Device) -> None:
    """Committed intents leave no sighting. Those of agents with the same slug count, those without room do not."""
    for run, epoch, agent in (("a", 50, "z e"), ("b", 80, "z?e"), ("c", LAST, "z?e"), ("d", 90, "zoe")):
        mac.intend(run, "committed", epoch=epoch, agent=agent)
    mac.intend("wild", "pending", epoch=2**64 - 1, agent="z e")
    await mac.push()
    read(await let_go(mac, "z e"))
    assert await epoch_of(mac, "z e") == 81


async def test_a_higher_claim_must_be_let_go_by_itself(device: NewDevice) -> None:
    mac = device("mac")
    for epoch, granted in ((LAST, 1), (LAST + 1, 2)):
        mac.intend("wild", "pending", epoch=epoch)
        await mac.push()
        refused(await acquire(mac), "epoch_exhausted")
        assert (await claim(mac))["claim"]["epoch"] == epoch
        read(await let_go(mac))
        assert await epoch_of(mac) == granted
    assert [one["claim"] for one in (await claim(mac))["let_go"]] == [LAST, LAST + 1]


async def test_to_let_go_again_or_without_a_claim_changes_nothing(mac: Device) -> None:
    once = read(await let_go(mac))
    assert read(await let_go(mac)) == once
    assert read(await let_go(mac, "nobody")) == {"agent_id": "nobody", "claim": None, "let_go": []}


async def test_an_epoch_that_was_really_granted_is_not_let_go(device: NewDevice) -> None:
    """A claim with room for one grant: that one is the register's last."""
    mac = device("mac")
    mac.intend("wild", "pending", epoch=LAST - 1)
    await mac.push()
    assert await epoch_of(mac) == LAST
    for response in (await acquire(mac), await let_go(mac)):
        assert refused(response, "epoch_exhausted")["granted_epoch"] == LAST


async def test_who_let_a_claim_go_is_noted_and_verify_knows_a_reset_without_a_claim(
    server: RunningServer, mac: Device, database: asyncpg.Connection
) -> None:
    token = await issue_token(server.database_url, "admin")
    async with server.client(token.secret) as admin:
        mac.client = admin
        (entry,) = read(await let_go(mac))["let_go"]
    assert (entry["claim"], entry["claimed_by"], entry["token"]) == (2**64 - 1, "ada", token.number)
    assert entry["reset_at"]
    (row,) = await database.fetch(RESETS, mac.scope)
    engine = create_engine(server.database_url, pool_size=2)
    assert [fault async for fault in verify(engine, row["scope"])] == []
    await database.execute("update claim_reset set agent = '\\x00' where scope = $1", row["scope"])
    assert ["was let go that no intent made" in fault async for fault in verify(engine, row["scope"])] == [True]
    await engine.dispose()
