"""Whole run ledgers: which entries there are, and their records in any order (run-ledger.md §12)."""

from collections.abc import AsyncIterator, Sequence

from app.sql.entries import StreamKey
from app.sql.pages import pages, small
from app.sql.rows import record_of
from app.sql.snapshots import PAYLOAD
from app.sql.transactions import Driver, Row
from foldpoint.state import Record

HELD = """
select t.id from unnest($4::bytea[]) as t(id) where exists (
    select from entry where scope = $1 and projection = $2 and stream = $3 and id = t.id
)
"""


async def held(pg: Driver, scope: int, key: StreamKey, ids: Sequence[str]) -> set[str]:
    """Those of these ids that entries of the stream have."""
    rows = await pg.fetch(HELD, scope, *key, [bytes.fromhex(name) for name in ids])
    return {row["id"].hex() for row in rows}


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
cross join lateral (
    select * from entry where scope = $1 and projection = $2 and stream = $3 and id = t.id limit 1
) e
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
