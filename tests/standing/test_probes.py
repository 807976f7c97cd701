"""Look-ups of entries and streams are probes of one row, also while the database knows nothing of the tables."""

import asyncpg
import pytest

from app.sql import entries, run_ledgers, snapshots

PROBES = {
    "places": (entries.PLACES, "'{1}', '{x}', '{x}'"),
    "known": (entries.KNOWN, "1, 'x', '{x}'"),
    "one stream": (snapshots.ONE_STREAM, "1, 'x'"),
    "payload": (snapshots.PAYLOAD, "1, 'x', 'x'"),
    "of ids": (run_ledgers.OF_IDS, "1, 'x', '{x}'"),
}


@pytest.mark.parametrize("name", PROBES)
async def test_a_look_up_goes_by_the_key_whatever_the_statistics_say(database_url: str, name: str) -> None:
    statement, arguments = PROBES[name]
    connection = await asyncpg.connect(database_url)
    await connection.execute("set plan_cache_mode = force_generic_plan")
    await connection.execute(f"prepare probe as {statement}")
    plan = [row[0] for row in await connection.fetch(f"explain execute probe(1, {arguments})")]
    await connection.close()
    scans = [line for line in plan if "Scan" in line and " on e" in line and "Subquery" not in line]
    assert scans
    assert all("using pk_" in line for line in scans), plan
