"""`verify` of long streams: each is folded once and in steps, past all of its snapshots (server.md §8)."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from app.services.projections import journals
from app.services.projections.streams import MANY, STEP, Folded, Streams
from app.services.verification.checking_snapshots import FOLDS, check_snapshots
from app.services.verification.verifying import verify
from app.sql.pages import PAGE_ROWS
from app.sql.transactions import begun, reading
from foldpoint.journal.fold import RECENT
from foldpoint.projections import JOURNAL
from foldpoint.state import Record
from tests.fixtures.devices import Device, NewDevice
from tests.fixtures.projections import enqueue, journal, number_of, read_stream
from tests.fixtures.server import RunningServer

#: A snapshot is kept after each.
PARTS = (MANY, MANY, STEP + MANY)
KEPT = "select id from entry_snapshot where scope = $1 order by entries"


@pytest.fixture
async def database(server: RunningServer) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(server.database_url)
    yield connection
    await connection.close()


async def with_snapshots(mac: Device, engine: AsyncEngine) -> int:
    """The number of a scope with one session, which has as many snapshots as there are parts."""
    streams, number = Streams(engine), 0
    for part in PARTS:
        for _ in range(part):
            journal(mac, {"op": "rename", "from": "s", "to": f"{len(mac.ops)}"})
        await mac.push()
        number = number or await number_of(engine, mac.scope)
        await streams.keep(await read_stream(streams, number, journals.FOLD, "s"))
    return number


async def faults(engine: AsyncEngine, number: int) -> list[str]:
    return [fault async for fault in verify(engine, number)]


async def test_a_stream_is_folded_once_and_in_steps_past_its_snapshots(
    device: NewDevice, engine_behind: AsyncEngine, database: asyncpg.Connection
) -> None:
    number = await with_snapshots(device("mac"), engine_behind)
    kept = len(await database.fetch(KEPT, number))
    assert kept > 1
    folded: list[int] = []

    def counted(name: str, snapshot: Any, records: list[Record]) -> Folded[Any, Any]:
        folded.append(len(records))
        return journals.FOLD.extend(name, snapshot, records)

    folds = {**FOLDS, JOURNAL.number: replace(journals.FOLD, extend=counted)}
    async with reading(engine_behind) as connection:
        assert [fault async for fault in check_snapshots(await begun(connection), number, folds)] == []
    assert max(folded) <= STEP + RECENT + PAGE_ROWS
    assert sum(PARTS) - RECENT <= sum(folded) <= sum(PARTS) + len(folded) * RECENT


async def test_of_several_snapshots_the_wrong_one_is_named(
    device: NewDevice, engine_behind: AsyncEngine, database: asyncpg.Connection
) -> None:
    number = await with_snapshots(device("mac"), engine_behind)
    first, *_, last = (row["id"] for row in await database.fetch(KEPT, number))
    moved = "update entry_snapshot set body = (select body from entry_snapshot where id = $2) where id = $1"
    await database.execute(moved, first, last)
    assert await faults(engine_behind, number) == ["a snapshot of foldpoint.journal 's' is not the fold of its entries"]


async def test_what_counts_far_below_is_folded_with_all_of_it(
    device: NewDevice, engine_behind: AsyncEngine, database: asyncpg.Connection
) -> None:
    mac, away = device("mac"), device("away")
    first = enqueue(mac, "0")
    for n in range(1, 2 * STEP):
        enqueue(mac, f"{n}")
    await mac.push()
    away.wall_ms = mac.wall_ms
    for n in range(RECENT + 1):
        journal(away, {"op": "dequeue", "queue": "steer", "count": 3}, seen={"mac": list(first.hlc[:2])}, source=n)
    await away.push()
    number, streams = await number_of(engine_behind, mac.scope), Streams(engine_behind)
    await streams.keep(await read_stream(streams, number, journals.FOLD, "s"))
    assert len(await database.fetch(KEPT, number)) == 1
    assert await faults(engine_behind, number) == []


async def test_of_many_entries_one_that_is_lost_is_named(
    device: NewDevice, engine_behind: AsyncEngine, database: asyncpg.Connection
) -> None:
    mac = device("mac")
    number = await with_snapshots(mac, engine_behind)
    lost = mac.ops[-MANY // 2]
    await database.execute("delete from entry_snapshot where scope = $1", number)
    gone = "delete from entry where scope = $1 and op_id = decode($2, 'hex')"
    assert await database.execute(gone, number, lost.op_id.removeprefix("op-")) == "DELETE 1"
    assert await faults(engine_behind, number) == [
        f"the entries of foldpoint.journal lack op {lost.op_id}",
        f"foldpoint.journal 's' lists {sum(PARTS)} entries, there are {sum(PARTS) - 1}",
    ]
