"""A snapshot that is kept while a late entry comes: in whatever order they commit, none is wrong (server.md §8)."""

import asyncio

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from app.services.projections import journals
from app.services.projections.streams import MANY, Streams
from app.sql import snapshots
from app.sql.snapshots import thinned
from app.sql.transactions import exclusive
from tests.fixtures.devices import NewDevice
from tests.fixtures.projections import number_of, one_late, read_stream, session_of


async def held(engine: AsyncEngine, scope: int) -> int:
    async with exclusive(engine) as pg:
        count: int = await pg.fetchval("select count(*) from entry_snapshot where scope = $1", scope)
    return count


async def waits_for_a_lock(engine: AsyncEngine) -> None:
    """Until a push waits for somebody's lock."""
    activity = "from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    while True:
        async with exclusive(engine) as pg:
            if await pg.fetchval(f"select exists (select {activity})"):
                return
        await asyncio.sleep(0)


async def test_a_snapshot_that_is_being_kept_goes_with_the_late_entry_that_waits_for_it(
    device: NewDevice, scope: str, engine_behind: AsyncEngine
) -> None:
    late = await one_late(device, 2 * MANY)
    number, streams = await number_of(engine_behind, scope), Streams(engine_behind)
    kept = (await read_stream(streams, number, journals.FOLD, "s")).kept
    assert kept is not None
    async with exclusive(engine_behind) as pg:
        await snapshots.keep(pg, number, kept.made, [])
        pushed = asyncio.create_task(late.push())
        await waits_for_a_lock(engine_behind)
    await pushed
    assert await held(engine_behind, number) == 0
    texts = [queued.text for queued in (await session_of(streams, number)).view.queues["steer"]]
    assert "late" in texts[:3]


async def test_while_a_late_entry_is_pushed_no_snapshot_from_before_it_is_kept(
    device: NewDevice, scope: str, engine_behind: AsyncEngine
) -> None:
    late = await one_late(device, 2 * MANY)
    number, streams = await number_of(engine_behind, scope), Streams(engine_behind)
    found = await read_stream(streams, number, journals.FOLD, "s")
    await asyncio.gather(late.push(), *(streams.keep(found) for _ in range(8)))
    await streams.keep(found)
    assert await held(engine_behind, number) == 0


@pytest.mark.parametrize(
    ("held_at", "left"),
    [
        ([600], [600]),
        ([1200, 600], [1200, 600]),
        ([1800, 1200, 600], [1800, 1200]),
        ([9600, 9000, 8400, 600], [9600, 9000, 600]),
        ([100_000, 99_400, 90_000, 89_000, 40_000, 600], [100_000, 99_400, 90_000, 600]),
    ],
)
def test_few_snapshots_stay_and_further_down_fewer(held_at: list[int], left: list[int]) -> None:
    gone = thinned([(entries, entries) for entries in held_at])
    assert [entries for entries in held_at if entries not in gone] == left
