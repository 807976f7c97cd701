"""Whole run ledgers: which entries there are, and their records in any order (run-ledger.md §12)."""

from collections.abc import AsyncIterator, Sequence

from app.sql import snapshots
from app.sql.entries import StreamKey, entry_with
from app.sql.rows import record_of
from app.sql.transactions import Driver
from foldpoint.state import Record

#: An id of another length is an op's: what does not recompute, nobody reads.
INDEX = snapshots.in_order("length(e.id) = 32")
OF_IDS = f"""
select {snapshots.COLUMNS}, e.payload
from unnest($4::bytea[]) with ordinality as t(id, i)
cross join lateral {entry_with("$2", "$3", "t.id")} e
join device d on d.scope = $1 and d.no = e.device
order by t.i
"""


def entries(pg: Driver, scope: int, key: StreamKey) -> AsyncIterator[list[Record]]:
    """All entries whose id recomputes, in order, a page in memory at a time."""
    return snapshots.records(pg, INDEX, scope, key)


async def of_ids(pg: Driver, scope: int, key: StreamKey, ids: Sequence[bytes]) -> list[Record]:
    """The entries with these ids, in their order."""
    return [record_of(row) for row in await pg.fetch(OF_IDS, scope, *key, ids)]
