"""Queue entries of journal sessions that claims handed out, each once, under the scope's lock (journal.md §8.4)."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from app.sql.keys import raw_op_id
from app.sql.transactions import Driver
from app.sql.writes import Writes


class Claimed(NamedTuple):
    """An entry that an op says it handed out; the stream by its key."""

    stream: bytes
    entry: bytes
    op_id: str


TAKEN = """
select c.entry from unnest($3::bytea[]) as e(id)
cross join lateral (
    select entry from journal_claim where scope = $1 and stream = $2 and entry = e.id limit 1
) c
"""


async def taken(pg: Driver, scope: int, stream: bytes, entries: Collection[str]) -> set[str]:
    """Which of these entries were handed out, by id."""
    ids = [bytes.fromhex(entry) for entry in entries]
    return {row["entry"].hex() for row in await pg.fetch(TAKEN, scope, stream, ids)}


PUT = """
insert into journal_claim (scope, stream, entry, op_id)
select distinct on (scope, stream, entry) scope, stream, entry, op_id
from unnest($1::int[], $2::bytea[], $3::bytea[], $4::bytea[]) as w(scope, stream, entry, op_id)
order by scope, stream, entry, op_id
on conflict do nothing
"""


def put(writes: Writes, scope: int, claimed: Iterable[Claimed]) -> None:
    """Note what was handed out."""
    writes.add(PUT, [(scope, one.stream, one.entry, raw_op_id(one.op_id)) for one in claimed])
