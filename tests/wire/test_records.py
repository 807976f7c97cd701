"""Folded records, surface by surface (server.md §4): winners only, in (hlc, op_id) order, paged by keyset."""

from typing import Any
from urllib.parse import quote

import httpx
import pytest

from foldpoint.fold import fold
from foldpoint.op import Op
from tests.fixtures.devices import START_MS, Device, NewDevice, collect
from tests.fixtures.vectors import text
from tests.wire.answers import read, refused

LONG = "k" * 300


async def entries(client: httpx.AsyncClient, scope: str, path: str, limit: int | None = None) -> list[Any]:
    found: list[Any] = []
    params: dict[str, Any] = {} if limit is None else {"limit": limit}
    while True:
        page = read(await client.get(f"/v1/scopes/{scope}/{path}", params=params))
        assert page.keys() == {"records", "cursor"}
        found += page["records"]
        if page["cursor"] is None:
            return found
        assert len(page["records"]) == limit
        params["cursor"] = page["cursor"]


def record(op: Op) -> Any:
    return {"op_id": op.op_id, "hlc": op.hlc.to_json(), "payload": op.payload}


@pytest.mark.parametrize("surface", ["knowledge", "skill", "trajectory", "run"])
async def test_the_first_writer_by_stamp_wins_a_grow_only_slot_also_when_it_comes_last(
    device: NewDevice, scope: str, surface: str
) -> None:
    mac, phone = device("mac"), device("phone")
    late = phone.write(surface, {"id": "a", "by": "phone"})
    phone.wall_ms = START_MS - 9
    first = mac.write(surface, {"id": "a", "by": "mac"})
    await phone.push()
    assert await entries(mac.client, scope, f"log/{surface}") == [record(late)]
    assert first.hlc < late.hlc
    await mac.push()
    assert await entries(mac.client, scope, f"log/{surface}") == [record(first)]


@pytest.mark.parametrize(("surface", "path"), [("declagent", "log/declagent"), ("registry:a/b", "registries/a/b")])
async def test_the_last_writer_by_stamp_wins_a_registry_slot_also_when_it_comes_first(
    device: NewDevice, scope: str, surface: str, path: str
) -> None:
    mac, phone = device("mac"), device("phone")
    last = phone.write(surface, {"id": "a", "by": "phone"})
    mac.write(surface, {"id": "a", "by": "mac"})
    for each in (phone, mac):
        await each.push()
    assert await entries(mac.client, scope, path) == [record(last)]


@pytest.mark.parametrize("limit", [None, 1, 4, 5_000])
async def test_records_are_in_order_and_paged(device: NewDevice, scope: str, limit: int | None) -> None:
    devices = [device(name) for name in ("\uffff1", "b", "Z")]
    for each in devices:
        for number in range(5):
            each.wall_ms = START_MS + number // 2
            each.write("knowledge", {"id": f"{each.name}{number}"})
            each.write("registry:config", {"id": f"{each.name}{number}"})
            each.write("routing", {"sample": number})
            each.write("conversation", {"content": number})
        await each.push()
    folded = fold(op for each in devices for op in each.ops)
    client = devices[0].client
    for surface in ("knowledge", "routing", "conversation"):
        expected = [found.to_json() for found in folded.log_entries(surface)]
        assert text(await entries(client, scope, f"log/{surface}", limit)) == text(expected)
    config = sorted(folded.registries["registry:config"].values())
    assert text(await entries(client, scope, "registries/config", limit)) == text([r.to_json() for r in config])


KINDS = ["config", "", "a:b", "a/b/c", "é", "\0", "%2F", LONG, LONG + "a", LONG + "b", LONG[:255], LONG[:256]]


async def test_a_registry_kind_may_be_any_string(device: NewDevice, scope: str) -> None:
    mac = device("mac")
    ops = {kind: mac.write(f"registry:{kind}", {"id": "a", "kind": kind}) for kind in KINDS}
    await mac.push()
    for kind, op in ops.items():
        assert await entries(mac.client, scope, f"registries/{quote(kind, safe='')}") == [record(op)], kind
    assert await entries(mac.client, scope, "registries/nobody") == []
    state = read(await mac.client.get(f"/v1/scopes/{scope}/state"))
    assert text(state["state"]) == fold(mac.ops).text().decode()


async def test_long_keys_do_not_collide_and_keep_the_order_of_the_state(device: NewDevice, scope: str) -> None:
    mac = device("mac")
    keys = [
        LONG,
        LONG + "a",
        LONG + "b",
        LONG + "é",
        "k" * 223,
        "k" * 224,
        "k" * 252,
        "k" * 253,
        "x" * 65_536,
        "",
        "\0",
    ]
    for surface in ("knowledge", "registry:config", "run"):
        for key in reversed(keys):
            mac.write(surface, {"id": key})
    for key in keys:
        mac.intend(key, "committed")
        mac.intend(key, "pending", agent=key)
    await mac.push()
    response = await mac.client.get(f"/v1/scopes/{scope}/state")
    assert fold(mac.ops).text() in response.content
    assert len(await entries(mac.client, scope, "log/knowledge")) == len(keys)


@pytest.mark.parametrize("surface", ["intent", "registry", "telepathy", "Knowledge", "registry:config", "%00"])
async def test_what_is_no_log_is_not_found(admin: httpx.AsyncClient, scope: str, surface: str) -> None:
    read(await admin.post(f"/sync/{scope}/devices/mac/ops", content=b"[]"))
    refused(await admin.get(f"/v1/scopes/{scope}/log/{surface}"), "not_found")


async def test_after_a_collection_the_records_are_what_they_were(device: NewDevice, scope: str) -> None:
    mac = device("mac")
    for number in range(6):
        for surface in ("knowledge", "registry:config", "routing", "declagent"):
            mac.write(surface, {"id": f"k{number % 4}", "n": number})
    await mac.push()
    paths = ("log/knowledge", "registries/config", "log/routing", "log/declagent")
    before = [await entries(mac.client, scope, path, 2) for path in paths]
    assert await collect([mac], mac.ops[:13]) == {"mac": 13}
    assert [await entries(mac.client, scope, path, 2) for path in paths] == before


@pytest.mark.parametrize("path", ["log/knowledge", "registries/config"])
async def test_cursors_and_limits_are_read_strictly(admin: httpx.AsyncClient, scope: str, path: str) -> None:
    read(await admin.post(f"/sync/{scope}/devices/mac/ops", content=b"[]"))
    url = f"/v1/scopes/{scope}/{path}"
    for cursor in ("", "x", "e30"):
        refused(await admin.get(url, params={"cursor": cursor}), "invalid_cursor")
    for limit in (0, 5_001, "x"):
        refused(await admin.get(url, params={"limit": limit}), "invalid_request")


async def test_a_device_may_have_all_of_these_at_once(device: NewDevice, scope: str) -> None:
    mac: Device = device("mac")
    mac.say("x")
    mac.write("routing", 1)
    mac.intend("r", "pending")
    mac.facts(2)
    await mac.push()
    glance = read(await mac.client.get(f"/v1/scopes/{scope}/"))
    counted = {name: number for name, number in glance["records"].items() if number}
    assert counted == {"conversation": 1, "routing": 1, "intent": 1, "knowledge": 2}
