"""Whole run ledgers: which entries there are, and their records in any order (run-ledger.md §12)."""

from collections.abc import AsyncIterator, Sequence

from app.sql.entries import StreamKey, entry_with
from app.sql.pages import pages, small
from app.sql.rows import record_of
from app.sql.snapshots import PAYLOAD
from app.sql.transactions import Driver, Row
from foldpoint.state import Record

_COLUMNS = "e.wall_ms, e.counter, d.id as device_id, e.op_id, e.id"
#: An id of another length is an op's: what does not recompute, nobody reads.
INDEX = f"""
select {_COLUMNS}, {small("e.payload", "e.payload")}
from entry e join device d on d.scope = $1 and d.no = e.device
where e.scope = $1 and e.projection = $2 and e.stream = $3 and length(e.id) = 32
order by e.wall_ms, e.counter, d.id, e.op_id
"""
OF_IDS = f"""
select {_COLUMNS}, e.payload
from unnest($4::bytea[]) with ordinality as t(id, i)
cross join lateral {entry_with("$2", "$3", "t.id")} e
join device d on d.scope = $1 and d.no = e.device
order by t.i
"""


async def entries(pg: Driver, scope: int, key: StreamKey) -> AsyncIterator[list[Record]]:
    """All entries whose id recomputes, in order, a page in memory at a time."""

    async def payload(row: Row) -> bytes:
        text: bytes = await pg.fetchval(PAYLOAD, scope, *key, row["id"])
        return text

    async for rows in pages(pg, INDEX, scope, *key, payload_of=payload):
        yield [record_of(row) for row in rows]


async def of_ids(pg: Driver, scope: int, key: StreamKey, ids: Sequence[bytes]) -> list[Record]:
    """The entries with these ids, in their order."""
    return [record_of(row) for row in await pg.fetch(OF_IDS, scope, *key, ids)]
