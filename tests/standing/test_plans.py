"""Look-ups by key read one row of a scope with many, also before anything was analysed (server.md §5)."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import orjson
import pytest

from app.sql import entries, snapshots

STREAMS = 300
FILLED = """
with told as (select n, sha256(n::text::bytea) as key, n::text::bytea as name from generate_series(1, $1::int) n),
streams as (
    insert into entry_stream (scope, projection, key, name, entries, late, wall_ms, counter, device_id, op_id)
    select 1, 1, key, name, 1, 1, 1, 0, 'd', 'x' from told
)
insert into entry (scope, wall_ms, counter, device, projection, stream, id, op_id, payload)
select 1, n, 0, 1, 1, sha256('1'), key, 'x', '{}' from told
"""
ID = bytes(32)
#: With what each is asked beside the scope, the projection and the stream.
BY_KEY: dict[str, tuple[str, list[Any]]] = {
    "the stream that a reader asks for": (snapshots.ONE_STREAM, []),
    "the stream of which a snapshot is kept": (snapshots.KEEP, [1, 1, 1, b"d", b"x", b"", 1]),
    "the entries that are known": (entries.KNOWN, [[ID]]),
    "a large payload": (snapshots.PAYLOAD, [ID]),
}


@pytest.fixture
async def unanalysed(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A database of many streams, one of them long, on which no statistics will ever be made."""
    connection = await asyncpg.connect(database_url)
    for table in ("entry_stream", "entry"):
        await connection.execute(f"alter table {table} set (autovacuum_enabled = off)")
    await connection.execute(FILLED, STREAMS)
    yield connection
    await connection.close()


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", []):
        yield from nodes(below)


async def read_by(pg: asyncpg.Connection, mode: str, query: str, *args: Any) -> dict[str, str]:
    """By which index a plan, of its arguments or of none, finds the rows of which table, and at no other row."""
    await pg.execute(f"set plan_cache_mode = {mode}")
    (told,) = orjson.loads(await pg.fetchval("explain (analyze, format json) " + query, *args))
    scans = [node for node in nodes(told["Plan"]) if node.get("Relation Name") in ("entry", "entry_stream")]
    assert not any("Filter" in node for node in scans)
    return {node["Relation Name"]: node["Index Name"] for node in scans}


MODES = ("force_custom_plan", "force_generic_plan")


@pytest.mark.parametrize("mode", MODES)
async def test_a_batch_finds_its_streams_and_entries_each_by_its_key(unanalysed: asyncpg.Connection, mode: str) -> None:
    keys = [row["key"] for row in await unanalysed.fetch("select key from entry_stream limit 20")]
    given = 1, [1] * len(keys), keys
    assert await read_by(unanalysed, mode, entries.STREAMS, *given) == {"entry_stream": "pk_entry_stream"}
    ids = [ID] * len(keys)
    assert await read_by(unanalysed, mode, entries.PLACES, *given, ids) == {"entry": "pk_entry"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", BY_KEY)
async def test_one_row_is_found_by_its_key(unanalysed: asyncpg.Connection, mode: str, name: str) -> None:
    query, more = BY_KEY[name]
    key = await unanalysed.fetchval("select sha256('1')")
    (index,) = (await read_by(unanalysed, mode, query, 1, 1, key, *more)).values()
    assert index.startswith("pk_")


async def test_a_stream_that_is_not_there_locks_no_other(unanalysed: asyncpg.Connection, database_url: str) -> None:
    other = await asyncpg.connect(database_url)
    locked = "select count(*) from (select from entry_stream for update skip locked) s"
    async with unanalysed.transaction():
        assert await unanalysed.fetch(entries.STREAMS, 1, [1, 0, 2], [bytes(32)] * 3) == []
        assert await other.fetchval(locked) == STREAMS
        key = await unanalysed.fetchval("select sha256('1')")
        assert len(await unanalysed.fetch(entries.STREAMS, 1, [1], [key])) == 1
        assert await other.fetchval(locked) == STREAMS - 1
    await other.close()
