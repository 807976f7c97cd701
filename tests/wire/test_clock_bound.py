"""Stamps of the future are bounded on every path, those of the past never are (server.md §7; R08 to R11)."""

from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from tests.fixtures.devices import Device, NewDevice, body_of, collect, op_ids
from tests.fixtures.server import RunningServer
from tests.wire.answers import read, refused

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
CLOCK = "select (extract(epoch from clock_timestamp()) * 1000)::bigint"
SET_HIGHEST = "update scope set max_wall_ms = $2 where slug = $1"
#: So much later than any clock of ours that it alone is the bound, to the millisecond.
HIGHEST = 10**15


async def on_the_wire(device: Device) -> dict[str, Any]:
    return refused(await device.offer(device.ops), "clock_skew")


async def on_v1(device: Device) -> dict[str, Any]:
    url = f"/v1/scopes/{device.scope}/devices/{device.name}/ops"
    answer = read(await device.client.post(url, content=body_of(device.ops)))
    results: list[dict[str, Any]] = answer["results"]
    assert [result["result"] for result in results] == ["stored", "rejected", "not_attempted"]
    assert results[1]["code"] == "clock_skew"
    return {**results[1], "accepted": answer["accepted"]}


@pytest.mark.parametrize("push", [on_the_wire, on_v1])
async def test_R08_R09_a_stamp_above_the_bound_is_refused_with_both_times_and_the_bound(
    device: NewDevice, database: asyncpg.Connection, push: Callable[[Device], Awaitable[dict[str, Any]]]
) -> None:
    mac = device("mac")
    now_ms = await database.fetchval(CLOCK)
    mac.facts(1)
    mac.wall_ms = now_ms + DAY_MS + HOUR_MS
    mac.facts(2)
    problem = await push(mac)
    assert (problem["device_id"], problem["seq"], problem["accepted"]) == ("mac", 1, 1)
    assert problem["op_wall_ms"] == mac.ops[1].hlc.wall_ms
    assert now_ms <= problem["server_ms"] < now_ms + HOUR_MS
    assert problem["bound_ms"] == problem["server_ms"] + DAY_MS
    assert op_ids(await mac.pull()) == [mac.ops[0].op_id]
    corrected = device("mac")
    corrected.facts(1)
    corrected.wall_ms = now_ms
    corrected.facts(1)
    assert read(await corrected.offer(corrected.ops)) == {"accepted": 1, "deduped": 1}


@pytest.mark.parametrize("wall_ms", [2**63 - 1, 2**53 + 1, 4_070_908_800_000])
async def test_R09_no_far_future_stamp_moves_the_bound(device: NewDevice, scope: str, wall_ms: int) -> None:
    far, honest = device("far"), device("honest")
    far.wall_ms = wall_ms
    far.write("registry:config", {"id": "a"})
    for _ in range(2):
        refused(await far.offer(far.ops), "clock_skew")
    honest.write("registry:config", {"id": "a"})
    await honest.push()
    refused(await far.offer(far.ops), "clock_skew")
    (found,) = read(await far.client.get(f"/v1/scopes/{scope}/registries/config"))["records"]
    assert found["op_id"] == honest.ops[0].op_id


async def test_a_clock_less_than_a_day_ahead_is_welcome(device: NewDevice, database: asyncpg.Connection) -> None:
    mac = device("mac")
    mac.wall_ms = await database.fetchval(CLOCK) + DAY_MS - HOUR_MS
    mac.facts(1)
    await mac.push()


@pytest.mark.parametrize(("beyond", "stored"), [(-1, True), (0, True), (1, False)])
async def test_R10_the_bound_itself_is_allowed_and_one_more_is_not(
    device: NewDevice, scope: str, database: asyncpg.Connection, beyond: int, *, stored: bool
) -> None:
    """Nobody loses to a stamp that the scope already holds: up to that a stamp is welcome."""
    mac = device("mac")
    mac.facts(1)
    await mac.push()
    await database.execute(SET_HIGHEST, scope, HIGHEST)
    mac.wall_ms = HIGHEST + beyond
    mac.facts(1)
    response = await mac.offer(mac.ops[1:])
    if stored:
        assert read(response)["accepted"] == 1
    else:
        problem = refused(response, "clock_skew")
        assert (problem["op_wall_ms"], problem["bound_ms"]) == (HIGHEST + 1, HIGHEST)


async def test_what_is_stored_is_a_duplicate_whatever_the_bound_says_now(
    device: NewDevice, scope: str, database: asyncpg.Connection
) -> None:
    mac = device("mac")
    mac.facts(1)
    await mac.push()
    await database.execute(SET_HIGHEST, scope, HIGHEST)
    mac.wall_ms = HIGHEST
    mac.facts(1)
    await mac.push()
    await database.execute(SET_HIGHEST, scope, 0)
    assert read(await mac.offer(mac.ops)) == {"accepted": 0, "deduped": 2}


async def test_R10_after_its_clock_is_set_back_a_device_goes_on_above_its_own_last_stamp(
    device: NewDevice, database: asyncpg.Connection
) -> None:
    mac = device("mac")
    now_ms = await database.fetchval(CLOCK)
    mac.wall_ms = now_ms + HOUR_MS
    mac.facts(1)
    mac.wall_ms = now_ms
    mac.facts(3)
    await mac.push()
    assert [op.hlc[:2] for op in mac.ops] == [(now_ms + HOUR_MS, counter) for counter in range(4)]


@pytest.mark.parametrize("age_ms", [90 * DAY_MS, 20_000 * DAY_MS, None])
async def test_R11_old_stamps_are_always_welcome(
    device: NewDevice, database: asyncpg.Connection, age_ms: int | None
) -> None:
    phone, mac = device("phone"), device("mac")
    phone.wall_ms = await database.fetchval(CLOCK)
    phone.facts(1)
    await phone.push()
    mac.wall_ms = 0 if age_ms is None else phone.wall_ms - age_ms
    mac.facts(5)
    await mac.push()
    assert op_ids(await mac.pull()) == [op.op_id for op in (*mac.ops, *phone.ops)]


async def test_with_the_bound_off_any_stamp_of_63_bits_works_everywhere(
    start_server: Callable[..., RunningServer],
) -> None:
    server = start_server(max_clock_skew_ms="0")
    async with server.client() as client:
        mac, base = Device(client, "s", "mac", wall_ms=2**63 - 1), "/v1/scopes/s"
        for _ in range(3):
            mac.wall_ms = 2**63 - 1
            mac.say("x")
        await mac.push()
        assert op_ids(await mac.pull()) == [op.op_id for op in mac.ops]
        page = await client.get(f"{base}/transcript", params={"conversation": "c", "limit": 2})
        before = {"conversation": "c", "before": read(page)["before"]}
        earlier = await client.get(f"{base}/transcript", params=before)
        assert [turn["op_id"] for turn in read(earlier)["turns"]] == [mac.ops[0].op_id]
        (entry,) = read(await client.get(f"{base}/conversations"))["conversations"]
        assert entry["last"] == mac.ops[-1].hlc.to_json()
        assert await collect([mac]) == {"mac": 3}
        assert len(read(await client.get(f"{base}/transcript", params={"conversation": "c"}))["turns"]) == 3
        assert read(await client.get("/v1/limits"))["max_clock_skew_ms"] == 0
