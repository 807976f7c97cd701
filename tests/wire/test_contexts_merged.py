"""Contexts that several devices and hosted writers make, however their ops arrive (stored-message.md §11)."""

import asyncio

import asyncpg
import httpx
from sqlalchemy.ext.asyncio import AsyncEngine

from app.services.projections.streams import MANY
from app.services.verification.verifying import verify
from tests.fixtures.contexts import CONTEXT, ask, move, put, remove, texts, write
from tests.fixtures.devices import NewDevice, collect
from tests.fixtures.projections import carried, number_of, put_message
from tests.fixtures.server import RunningServer
from tests.wire.answers import read, refused


async def test_an_op_with_anothers_id_hides_it_in_the_registry_but_not_in_its_context(
    device: NewDevice, scope: str
) -> None:
    mac, thief = device("mac"), device("thief")
    said = put_message(mac, "m", "said").payload
    assert isinstance(said, dict)
    thief.wall_ms = mac.wall_ms + 1000
    thief.write(CONTEXT, {**said, "op": "remove"})
    thief.write(CONTEXT, {"id": "none", "session": "s", "op": "remove", "message_id": "m"})
    for each in (mac, thief):
        await each.push()
    registry = read(await mac.client.get(f"/v1/scopes/{scope}/registries/foldpoint.context"))["records"]
    assert [record["hlc"]["device_id"] for record in registry] == ["thief", "thief"]
    assert await texts(mac.client, scope) == ["said"]
    assert await collect([mac, thief]) == {"mac": 1, "thief": 2}
    assert await texts(mac.client, scope) == ["said"]


async def test_what_an_author_writes_again_counts_where_it_came_last(device: NewDevice, scope: str) -> None:
    mac = device("mac")
    for text in ("one", "two"):
        put_message(mac, "m", text)
    await mac.push()
    assert await texts(mac.client, scope) == ["two"]
    put_message(mac, "m", "one")
    await mac.push()
    assert await texts(mac.client, scope) == ["one"]
    (listed,) = read(await mac.client.get(f"/v1/scopes/{scope}/contexts"))["contexts"]
    assert listed["entries"] == 2


async def test_a_move_waits_for_its_message_and_a_removal_is_of_any_stamp(device: NewDevice, scope: str) -> None:
    mac, phone = device("mac"), device("phone")
    carried(phone, CONTEXT, {"session": "s", **remove("gone")})
    mac.wall_ms = phone.wall_ms + 1000
    put_message(mac, "gone", "never seen")
    carried(mac, CONTEXT, {"session": "s", **move("late", "system", 0)})
    await mac.push()
    held = read(await ask(mac.client, scope))
    assert (held["message_ids"], held["pending"]) == (["gone"], ["late"])
    assert held["last"] == {"hlc": mac.ops[-1].hlc.to_json(), "op_id": mac.ops[-1].op_id}
    put_message(phone, "late", "here")
    await phone.push()
    held = read(await ask(mac.client, scope))
    assert (held["message_ids"], held["pending"]) == (["late"], [])
    assert held["messages"][0]["partition"] == "system"


async def test_what_arrives_below_a_snapshot_is_folded_in_its_place(
    device: NewDevice,
    scope: str,
    database: asyncpg.Connection,
    engine_behind: AsyncEngine,
    second_server: RunningServer,
) -> None:
    mac, late = device("mac"), device("late")
    late.wall_ms += 1
    for n in range(MANY + 10):
        put_message(mac, f"{n}", f"{n}")
    await mac.push()
    number = await number_of(engine_behind, scope)
    count = "select count(*) from entry_snapshot where scope = $1"
    first = await texts(mac.client, scope)
    assert await database.fetchval(count, number) == 1
    put_message(late, "1", "changed late, and counts no more")
    put_message(late, "between", "between")
    carried(late, CONTEXT, {"session": "s", **remove("2")})
    await late.push()
    assert await database.fetchval(count, number) == 0
    expected = [*first[:2], "between", *first[3:]]
    assert await texts(mac.client, scope) == expected
    assert await database.fetchval(count, number) == 1
    async with second_server.client() as other:
        assert await texts(other, scope) == expected
    assert [fault async for fault in verify(engine_behind, number)] == []


async def test_a_snapshot_that_does_not_verify_is_dropped_and_all_is_folded_again(
    device: NewDevice,
    scope: str,
    database: asyncpg.Connection,
    engine_behind: AsyncEngine,
    second_server: RunningServer,
) -> None:
    mac = device("mac")
    for n in range(MANY):
        put_message(mac, f"{n}", f"{n}")
    await mac.push()
    expected = read(await ask(mac.client, scope))
    number = await number_of(engine_behind, scope)
    kept = "select id, body from entry_snapshot where scope = $1"
    (good,) = await database.fetch(kept, number)
    torn = good["body"].replace(b'"text":"7"', b'"text":"8"', 1)
    assert torn != good["body"]
    await database.execute("update entry_snapshot set body = $2 where scope = $1", number, torn)
    async with second_server.client() as other:
        assert read(await ask(other, scope)) == expected
    (again,) = await database.fetch(kept, number)
    assert (again["id"] != good["id"], again["body"]) == (True, good["body"])


async def test_two_processes_carry_out_a_call_once_and_none_overtakes_a_removal(
    admin: httpx.AsyncClient, scope: str, second_server: RunningServer
) -> None:
    async with second_server.client() as other:
        key = {"idempotency-key": "one call"}
        calls = [write(one, scope, put("a"), put("b", 1), **key) for one in (admin, other) * 3]
        answers = await asyncio.gather(*calls)
        assert len({answer.content for answer in answers}) == 1
        assert len(read(answers[0])["ops"]) == 2
        gone = [write(admin, scope, remove("a")), *(write(other, scope, put("a", n)) for n in range(8))]
        outcomes = [answer.status_code for answer in await asyncio.gather(*gone)]
        assert outcomes[0] == 200
        assert await texts(other, scope) == ["b"]
        refused(await write(other, scope, put("a")), "invalid_request")
        (listed,) = read(await other.get(f"/v1/scopes/{scope}/contexts"))["contexts"]
        assert listed["entries"] == 3 + outcomes[1:].count(200)


async def test_a_writer_that_never_reads_leaves_snapshots(
    admin: httpx.AsyncClient, scope: str, database: asyncpg.Connection, engine_behind: AsyncEngine
) -> None:
    read(await write(admin, scope, *(put(f"{n}", n) for n in range(MANY))))
    number = await number_of(engine_behind, scope)
    count = "select count(*) from entry_snapshot where scope = $1"
    assert await database.fetchval(count, number) == 0
    read(await write(admin, scope, put("last", MANY)))
    assert await database.fetchval(count, number) == 1
    assert await texts(admin, scope) == [*(f"{n}" for n in range(MANY)), "last"]
