"""Names travel as slugs (server.md §3): which raw name a slug stands for is fixed once."""

from urllib.parse import quote

import asyncpg
import httpx
import pytest

from tests.fixtures.devices import Device, NewDevice, body_of, op_ids
from tests.fixtures.tokens import ClientOf
from tests.wire.answers import read, refused

DEVICES = "select d.slug, d.id from device d join scope s on s.id = d.scope where s.slug = $1 order by 1"


async def test_a_device_slug_belongs_to_the_raw_id_of_its_first_op(device: NewDevice) -> None:
    first, second = device("my mac"), device("my@mac")
    assert first.path == second.path
    first.facts(1)
    await first.push()
    problem = refused(await second.offer(second.facts(1)), "foreign_ops")
    assert (problem["device_id"], problem["op_device"]) == ("my mac", "my@mac")
    first.facts(1)
    await first.push()


async def test_a_refused_first_op_binds_nothing(device: NewDevice) -> None:
    first, second = device("my mac"), device("my@mac")
    refused(await first.offer(first.facts(2)[1:]), "gap")
    second.facts(1)
    await second.push()


async def test_a_contact_binds_no_raw_id(device: NewDevice) -> None:
    mac = device("my mac")
    await mac.client.post(mac.path)
    mac.facts(1)
    await mac.push()


async def test_an_op_of_another_slug_is_foreign(device: NewDevice) -> None:
    mac, phone = device("mac"), device("phone")
    problem = refused(await mac.offer(phone.facts(1)), "foreign_ops")
    assert (problem["device_id"], problem["op_device"]) == ("mac", "phone")


@pytest.mark.parametrize("call", ["", "/ops", "/pull"])
async def test_a_raw_id_in_a_path_means_its_slug(
    device: NewDevice, scope: str, database: asyncpg.Connection, call: str
) -> None:
    """Otherwise one raw id could have two chains."""
    mac = device("my mac\0")
    mac.facts(2)
    raw = f"/sync/{scope}/devices/{quote(mac.name)}"
    body = {"": b"", "/ops": body_of(mac.ops[:1]), "/pull": b"{}"}[call]
    assert (await mac.client.post(raw + call, content=body)).status_code == 200
    await mac.offer(mac.ops)
    assert [tuple(row) for row in await database.fetch(DEVICES, scope)] == [("my_mac_", b"my mac\0")]
    url = f"/v1/scopes/{scope}/devices/{quote(mac.name)}/ops"
    assert read(await mac.client.post(url, content=body_of(mac.ops)))["deduped"] == 2


@pytest.mark.parametrize("name", ["hosted-", "hosted-bot-0123abcd", "hosted-x y"])
async def test_ids_of_hosted_devices_are_refused_on_every_device_call(device: NewDevice, name: str) -> None:
    hosted = device(name)
    hosted.facts(1)
    calls = [("", b""), ("/ops", body_of(hosted.ops)), ("/ops", b"[]"), ("/ops", b"{}"), ("/pull", b"{}")]
    for call, body in calls:
        refused(await hosted.client.post(hosted.path + call, content=body), "reserved_device")
    stamp = hosted.ops[0].hlc
    refused(await hosted.ack(stamp), "reserved_device")
    url = f"/v1/scopes/{hosted.scope}/devices/{quote(name)}/ops"
    refused(await hosted.client.post(url, content=body_of(hosted.ops)), "reserved_device")


async def test_a_scope_is_bound_to_the_raw_name_of_its_token(client_of: ClientOf, admin: httpx.AsyncClient) -> None:
    mac = await client_of("device", "user:slug-1")
    for name in ("user:slug-1", "user_slug-1"):
        assert read(await mac.get(f"/v1/scopes/{name}/"))["scope"] == "user:slug-1"
        read(await mac.post(f"/sync/{name}/devices/mac/pull", content=b"{}"))
    refused(await mac.get("/v1/scopes/user!slug-1/"), "forbidden")
    refused(await mac.post("/sync/user!slug-1/devices/mac/ops", content=b"[]"), "forbidden")
    refused(await admin.get("/v1/scopes/user!slug-1/"), "not_found")
    refused(await admin.post("/sync/user!slug-1/devices/mac/ops", content=b"[]"), "not_found")
    assert read(await admin.get("/v1/scopes/user_slug-1/"))["scope"] == "user:slug-1"


@pytest.mark.parametrize("write", ["/ops", "/pull", ""])
async def test_the_first_raw_name_that_an_admin_writes_binds_and_a_read_binds_nothing(
    admin: httpx.AsyncClient, scope: str, write: str
) -> None:
    slug = scope.replace("user_", "org_")
    body = {"/ops": b"[]", "/pull": b"{}", "": b""}[write]
    read(await admin.post(f"/sync/{slug}/devices/mac{write}", content=body))
    raw, other = slug.replace("_", ":"), slug.replace("_", "!")
    assert read(await admin.get(f"/v1/scopes/{other}/"))["scope"] == slug
    read(await admin.post(f"/sync/{raw}/devices/mac{write}", content=body))
    assert read(await admin.get(f"/v1/scopes/{slug}/"))["scope"] == raw
    refused(await admin.get(f"/v1/scopes/{other}/"), "not_found")
    refused(await admin.post(f"/sync/{other}/devices/mac{write}", content=body), "not_found")


async def test_a_scope_name_may_have_512_characters(admin: httpx.AsyncClient, scope: str) -> None:
    longest = scope + "x" * (512 - len(scope))
    read(await admin.post(f"/sync/{longest}/devices/mac/ops", content=b"[]"))
    for path in (f"/sync/{longest}x/devices/mac/ops", f"/sync/{longest}x/devices/mac/pull"):
        refused(await admin.post(path, content=b"[]"), "invalid_request")
    refused(await admin.get(f"/v1/scopes/{longest}x/"), "not_found")


async def test_scopes_share_nothing(device: NewDevice, admin: httpx.AsyncClient, scope: str) -> None:
    mac, elsewhere = device("mac"), Device(admin, scope + "-2", "mac")
    for each in (mac, elsewhere):
        each.facts(1)
    elsewhere.facts(1)
    await mac.push()
    await elsewhere.push()
    assert op_ids(await mac.pull()) == [mac.ops[0].op_id]
    assert op_ids(await elsewhere.pull()) == [op.op_id for op in elsewhere.ops]
