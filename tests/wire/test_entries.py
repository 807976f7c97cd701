"""Entries of the projections: nobody takes another's place, and snapshots are never wrong (server.md §8)."""

import asyncpg
import httpx
from sqlalchemy.ext.asyncio import AsyncEngine

from app.services.projections import contexts, journals, run_ledgers
from app.services.projections.streams import MANY, STEP, Streams
from app.services.verification.verifying import verify
from foldpoint.journal.fold import RECENT
from tests.fixtures.devices import NewDevice, collect
from tests.fixtures.projections import (
    enqueue,
    journal,
    number_of,
    one_late,
    put_message,
    read_stream,
    session_of,
    started,
)
from tests.wire.answers import read


async def test_an_op_with_anothers_id_hides_it_in_the_registry_but_not_in_its_stream(
    device: NewDevice, scope: str, database: asyncpg.Connection, engine_behind: AsyncEngine
) -> None:
    mac, thief = device("mac"), device("thief")
    queued = enqueue(mac, "the first").payload
    assert isinstance(queued, dict)
    thief.wall_ms = mac.wall_ms + 1000
    thief.write("registry:foldpoint.journal", {**queued, "entry": {"op": "unrewind"}})
    await mac.push()
    await thief.push()
    registry = read(await mac.client.get(f"/v1/scopes/{scope}/registries/foldpoint.journal"))["records"]
    assert [record["hlc"]["device_id"] for record in registry] == ["thief"]
    number, streams = await number_of(engine_behind, scope), Streams(engine_behind)
    before = await session_of(streams, number)
    assert [text.text for text in before.view.queues["steer"]] == ["the first"]
    assert (before.records, before.skipped) == (1, 1)
    assert await collect([mac, thief]) == {"mac": 1, "thief": 1}
    assert await database.fetchval("select count(*) from op where scope = $1", number) == 0
    assert await session_of(streams, number) == before
    assert [fault async for fault in verify(engine_behind, number)] == []


async def test_what_an_author_writes_again_moves_and_is_not_counted_twice(
    device: NewDevice, scope: str, database: asyncpg.Connection, engine_behind: AsyncEngine
) -> None:
    mac = device("mac")
    for text in ("a", "b", "a"):
        enqueue(mac, text)
    await mac.push()
    number, streams = await number_of(engine_behind, scope), Streams(engine_behind)
    state = await session_of(streams, number)
    assert [queued.text for queued in state.view.queues["steer"]] == ["b", "a"]
    enqueue(mac, "b")
    await mac.push()
    state = await session_of(streams, number)
    assert [queued.text for queued in state.view.queues["steer"]] == ["a", "b"]
    counted = "select entries from entry_stream where scope = $1"
    assert await database.fetchval(counted, number) == 2
    assert [fault async for fault in verify(engine_behind, number)] == []


async def test_a_read_goes_on_from_a_snapshot_unless_something_came_below_it(
    device: NewDevice, scope: str, database: asyncpg.Connection, engine_behind: AsyncEngine
) -> None:
    late = await one_late(device, 3 * MANY)
    number, streams = await number_of(engine_behind, scope), Streams(engine_behind)
    found = await read_stream(streams, number, journals.FOLD, "s")
    assert found.kept is not None
    await streams.keep(found)
    await streams.keep(found)
    assert await database.fetchval("select count(*) from entry_snapshot where scope = $1", number) == 1
    assert (await read_stream(Streams(engine_behind), number, journals.FOLD, "s")).kept is None
    assert [fault async for fault in verify(engine_behind, number)] == []
    await late.push()
    assert await database.fetchval("select count(*) from entry_snapshot where scope = $1", number) == 0
    await streams.keep(found)
    assert await database.fetchval("select count(*) from entry_snapshot where scope = $1", number) == 0
    texts = [queued.text for queued in (await session_of(streams, number)).view.queues["steer"]]
    assert sorted(texts[:3]) == ["0", "1", "late"]
    assert len(texts) == 3 * MANY + 1


async def test_streams_of_the_three_are_apart_and_no_part_of_conversations(
    device: NewDevice, admin: httpx.AsyncClient, scope: str, engine_behind: AsyncEngine
) -> None:
    mac = device("mac")
    enqueue(mac, "one", session="same")
    started(mac, run="same")
    put_message(mac, "m", "hello", session="same")
    mac.write("registry:foldpoint.journal", {"id": "no stream"})
    mac.write("registry:foldpoint.journal", "not an object")
    await mac.push()
    number, streams = await number_of(engine_behind, scope), Streams(engine_behind)
    assert (await session_of(streams, number, "same")).records == 1
    merged = (await read_stream(streams, number, run_ledgers.FOLD, "same")).now
    assert merged.state.phase == {"phase": "ready_for_context"}
    context = (await read_stream(streams, number, contexts.FOLD, "same")).now
    assert context.message_ids() == ["m"]
    assert read(await admin.get(f"/v1/scopes/{scope}/conversations"))["conversations"] == []
    assert (await session_of(streams, number, "nobody's")).records == 0


async def test_an_entry_that_counts_far_below_is_read_and_a_snapshot_of_another_version_is_not(
    device: NewDevice, scope: str, database: asyncpg.Connection, engine_behind: AsyncEngine
) -> None:
    """What was away when thousands of entries came takes the first of those it knew."""
    mac, away = device("mac"), device("away")
    first = enqueue(mac, "0")
    for n in range(1, 2 * STEP + RECENT):
        enqueue(mac, f"{n}")
    await mac.push()
    away.wall_ms = mac.wall_ms
    journal(away, {"op": "dequeue", "queue": "steer", "count": 3}, seen={"mac": list(first.hlc[:2])})
    await away.push()
    number, streams = await number_of(engine_behind, scope), Streams(engine_behind)
    read_once = await read_stream(streams, number, journals.FOLD, "s")
    assert [queued.text for queued in read_once.now.view.queues["steer"]][:2] == ["1", "2"]
    await streams.keep(read_once)
    await database.execute("update entry_snapshot set body = '{\"version\":0}' where scope = $1", number)
    assert await session_of(Streams(engine_behind), number) == read_once.now
