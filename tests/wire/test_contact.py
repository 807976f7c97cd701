"""Who is on the roster, and what puts a device there (car-sync.md §11.1)."""

from collections.abc import Callable

import asyncpg
import httpx
import pytest

from tests.fixtures.devices import Device, NewDevice
from tests.fixtures.server import RunningServer
from tests.wire.answers import read, refused

HOUR_MS = 3_600_000
LAST_SEEN = "select d.last_seen_ms from device d join scope s on s.id = d.scope where s.slug = $1 and d.slug = $2"
SET_LAST_SEEN = """
update device d set last_seen_ms = last_seen_ms - $3
from scope s where s.id = d.scope and s.slug = $1 and d.slug = $2
"""
EXISTS = "select exists (select from scope where slug = $1)"


async def roster_of(client: httpx.AsyncClient, scope: str) -> list[str]:
    return [entry["device_id"] for entry in read(await client.get(f"/sync/{scope}/roster"))]


async def test_enrolling_answers_the_roster_entry_and_keeps_the_first_time(device: NewDevice) -> None:
    mac = device("mac")
    first = read(await mac.client.post(mac.path))
    added_ms = first["added_at"]["wall_ms"]
    assert first == {
        "device_id": "mac",
        "added_at": {"wall_ms": added_ms, "counter": 0, "device_id": "mac"},
        "last_seen_ms": added_ms,
        "acked": None,
        "status": "active",
    }
    again = read(await mac.client.post(mac.path))
    assert again["added_at"] == first["added_at"]
    assert again["last_seen_ms"] >= added_ms


async def test_the_roster_is_in_byte_order_of_the_raw_ids(
    device: NewDevice, admin: httpx.AsyncClient, scope: str
) -> None:
    names = ["b", "Z", "é1", "_", "a b", "😀3", "a", "\uffff2", "a\0"]
    for name in names:
        owner = device(name)
        owner.facts(1)
        await owner.push()
    assert await roster_of(admin, scope) == sorted(names)


async def test_a_device_is_known_by_its_slug_until_an_op_names_it(
    device: NewDevice, admin: httpx.AsyncClient, scope: str
) -> None:
    mac = device("my mac")
    await mac.client.post(mac.path)
    assert await roster_of(admin, scope) == ["my_mac"]
    mac.facts(1)
    await mac.push()
    assert await roster_of(admin, scope) == ["my mac"]


CONTACTS = {
    "enrolling": ("", b"", 200),
    "an empty push": ("/ops", b"[]", 200),
    "a push that is no array": ("/ops", b"{}", 422),
    "a push whose op cannot be read": ("/ops", b"[1]", 422),
    "a pull": ("/pull", b"{}", 200),
    "a pull whose frontier cannot be read": ("/pull", b"[]", 422),
    "an ack": ("/ack", b'{"wall_ms":1,"counter":0,"device_id":"a"}', 200),
    "an ack whose stamp cannot be read": ("/ack", b"{}", 422),
}


@pytest.mark.parametrize(("path", "body", "status"), CONTACTS.values(), ids=CONTACTS)
async def test_every_call_of_a_device_is_a_contact_even_if_it_fails(
    device: NewDevice, scope: str, database: asyncpg.Connection, path: str, body: bytes, status: int
) -> None:
    mac = device("mac")
    assert (await mac.client.post(mac.path + path, content=body)).status_code == status
    assert await roster_of(mac.client, scope) == ["mac"]
    await database.execute(SET_LAST_SEEN, scope, "mac", HOUR_MS)
    before = await database.fetchval(LAST_SEEN, scope, "mac")
    await mac.client.post(mac.path + path, content=body)
    assert await database.fetchval(LAST_SEEN, scope, "mac") - before >= HOUR_MS


async def test_a_refused_op_is_a_contact_too(device: NewDevice, scope: str) -> None:
    mac, other = device("mac"), device("other")
    refused(await mac.offer(other.facts(1)), "foreign_ops")
    assert await roster_of(mac.client, scope) == ["mac"]


async def test_an_ack_that_gives_a_field_twice_is_refused(device: NewDevice) -> None:
    mac = device("mac")
    stamp = b'{"counter":0,"device_id":"mac","wall_ms":2,"wall_ms":1}'
    problem = refused(await mac.client.post(f"{mac.path}/ack", content=stamp), "invalid_request")
    assert (problem["path"], problem["detail"]) == ("wall_ms", "wall_ms: duplicate field")


async def test_calls_that_name_no_device_touch_nobody(
    device: NewDevice, scope: str, database: asyncpg.Connection
) -> None:
    mac = device("mac")
    mac.facts(1)
    await mac.push()
    await database.execute(SET_LAST_SEEN, scope, "mac", HOUR_MS)
    before = await database.fetchval(LAST_SEEN, scope, "mac")
    sync, client = f"/sync/{scope}", mac.client
    for path in ("/roster", "/stable-frontier", "/checkpoints/latest", "/leases/ada"):
        read(await client.get(sync + path))
    read(await client.post(sync + "/gc"))
    await client.put(sync + "/checkpoints", content=b"{}")
    await client.post(sync + "/leases/ada/acquire", json={"device_id": "tablet", "ttl_ms": 1})
    for path in ("/", "/ops", "/state", "/conversations", "/roster"):
        read(await client.get(f"/v1/scopes/{scope}{path}"))
    await client.post(f"/v1/scopes/{scope}/devices/mac/ops", content=b"[]")
    await client.post(f"/v1/scopes/{scope}/devices/phone/ops", content=b"[]")
    assert await roster_of(client, scope) == ["mac"]
    assert await database.fetchval(LAST_SEEN, scope, "mac") == before


async def test_an_unused_scope_answers_like_an_empty_relay(
    admin: httpx.AsyncClient, scope: str, database: asyncpg.Connection
) -> None:
    """Never 404: the client takes that for an outage. And looking at it creates nothing."""
    sync = f"/sync/{scope}"
    assert read(await admin.get(f"{sync}/checkpoints/latest")) is None
    assert read(await admin.get(f"{sync}/roster")) == []
    assert read(await admin.get(f"{sync}/stable-frontier")) is None
    assert read(await admin.post(f"{sync}/gc")) == {"dropped": {}}
    assert read(await admin.get(f"{sync}/leases/ada")) == {"Current": None}
    for path in ("/", "/ops", "/state/hash", "/conversations"):
        refused(await admin.get(f"/v1/scopes/{scope}{path}"), "not_found")
    assert not await database.fetchval(EXISTS, scope)
    assert read(await admin.post(f"{sync}/devices/mac/pull", content=b"{}")) == {"ops": [], "latest_checkpoint": None}
    assert await database.fetchval(EXISTS, scope)


async def test_a_device_silent_for_longer_than_the_horizon_is_evicted_by_anyones_call_but_its_own(
    start_server: Callable[..., RunningServer],
) -> None:
    server = start_server(eviction_horizon_ms=str(2 * HOUR_MS))
    database = await asyncpg.connect(server.database_url)
    async with server.client() as client:
        mac, phone = Device(client, "s", "mac"), Device(client, "s", "phone")
        for each in (mac, phone):
            each.facts(1)
            await each.push()

        async def status(name: str) -> str:
            entries = {entry["device_id"]: entry for entry in read(await client.get("/sync/s/roster"))}
            return str(entries[name]["status"])

        await database.execute(SET_LAST_SEEN, "s", "mac", HOUR_MS)
        await phone.pull()
        assert await status("mac") == "active"
        await database.execute(SET_LAST_SEEN, "s", "mac", 2 * HOUR_MS)
        await mac.pull()
        assert await status("mac") == "active"
        await database.execute(SET_LAST_SEEN, "s", "mac", 2 * HOUR_MS + 1)
        assert await status("mac") == "active"
        await phone.pull()
        assert await status("mac") == "evicted"
        mac.facts(1)
        await mac.push()
        await mac.pull()
        assert await status("mac") == "evicted"
        assert read(await mac.ack()) == {"advanced": True, "reinstated": True}
        assert await status("mac") == "active"
    await database.close()
