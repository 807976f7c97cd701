"""Reads that only `verify` makes: everything that is stored of a scope, in an order that can be checked."""

from collections.abc import AsyncIterable, Sequence
from typing import Any

from app.sql.entries import StreamKey, entry_with
from app.sql.transactions import Driver, Row

OPS = """
select o.device, o.seq, o.wall_ms, o.counter, o.op_id, o.surface, o.stream, o.payload_at, o.body
from op o where o.scope = $1 order by o.device, o.seq
"""
FLOORS = """
select no, id, dropped_below, dropped_op_id, dropped_wall_ms, dropped_counter
from device where scope = $1 and head_seq is not null
"""
SEEN = """
select a.name as agent, s.key, s.epoch, s.failed, s.wall_ms, s.counter, d.id as device_id, s.op_id, s.payload
from run_seen s join agent a on a.scope = s.scope and a.key = s.agent
join device d on d.scope = s.scope and d.no = s.device
where s.scope = $1
"""
UNFOUNDED_RESETS = """
select r.claim, r.claimed_by from claim_reset r
where r.scope = $1
  and not exists (select from agent a where a.scope = $1 and a.slug_key = r.agent and a.fencing_epoch >= r.claim)
"""
ENTRIES_OF = f"""
select t.i, e.wall_ms, e.counter, d.id as device_id, e.op_id, sha256(e.payload) as digest
from unnest($2::smallint[], $3::bytea[], $4::bytea[]) with ordinality as t(projection, stream, id, i)
cross join lateral {entry_with("t.projection", "t.stream", "t.id")} e
join device d on d.scope = $1 and d.no = e.device
"""
ENTRY_STREAMS = """
select projection, stream, s.name, coalesce(s.entries, 0) as entries, coalesce(e.found, 0) as found,
       s.wall_ms, s.counter, s.device_id, s.op_id, l.*
from (select projection, stream, count(*) as found from entry where scope = $1 group by projection, stream) e
full join (select *, key as stream from entry_stream where scope = $1) s using (projection, stream)
left join lateral (
    select e.wall_ms as last_wall_ms, e.counter as last_counter, d.id as last_device_id, e.op_id as last_op_id
    from entry e join device d on d.scope = $1 and d.no = e.device
    where e.scope = $1 and e.projection = s.projection and e.stream = s.stream
    order by e.wall_ms desc, e.counter desc, d.id desc, e.op_id desc limit 1
) l on true
"""
ENTRY_SNAPSHOTS = """
select n.id, n.projection, n.stream, n.wall_ms, n.counter, n.device_id, n.op_id, s.name
from entry_snapshot n
join entry_stream s on s.scope = n.scope and s.projection = n.projection and s.key = n.stream
where n.scope = $1
order by n.projection, n.stream, n.wall_ms, n.counter, n.device_id, n.op_id
"""
CLAIMS_OF = """
select c.stream, c.entry from unnest($2::bytea[], $3::bytea[]) as t(stream, entry)
join journal_claim c on c.scope = $1 and c.stream = t.stream and c.entry = t.entry
"""
TAGS = "select device, tag, first_seq from op_scope where scope = $1"


def ops(pg: Driver, scope: int) -> AsyncIterable[Row]:
    """Every op row, device by device, by seq."""
    return pg.cursor(OPS, scope, prefetch=500)


async def floors(pg: Driver, scope: int) -> list[Row]:
    return await pg.fetch(FLOORS, scope)


async def seen(pg: Driver, scope: int) -> list[Row]:
    return await pg.fetch(SEEN, scope)


async def entries_of(pg: Driver, scope: int, slots: Sequence[tuple[StreamKey, bytes]]) -> list[Row]:
    """The entries with these ids that are there, each with its number among them from 1, its payload as a hash."""
    keys = [(*stream, name) for stream, name in slots]
    return await pg.fetch(ENTRIES_OF, scope, *([key[at] for key in keys] for at in range(3)))


def entry_streams(pg: Driver, scope: int) -> AsyncIterable[Row]:
    """Every stream that is listed or has entries: what is listed of it, and how many entries and which last it has."""
    return pg.cursor(ENTRY_STREAMS, scope, prefetch=500)


def entry_snapshots(pg: Driver, scope: int) -> AsyncIterable[Row]:
    """Every snapshot without its text, stream by stream, by place."""
    return pg.cursor(ENTRY_SNAPSHOTS, scope, prefetch=500)


async def claims_of(pg: Driver, scope: int, claims: Sequence[tuple[bytes, bytes]]) -> set[tuple[bytes, bytes]]:
    """Which of these queue entries, by stream key and id, are noted as handed out."""
    rows = await pg.fetch(CLAIMS_OF, scope, [stream for stream, _ in claims], [entry for _, entry in claims])
    return {(row["stream"], row["entry"]) for row in rows}


async def unfounded_resets(pg: Driver, scope: int) -> list[Row]:
    return await pg.fetch(UNFOUNDED_RESETS, scope)


async def first_seqs(pg: Driver, scope: int) -> dict[tuple[int, str], int]:
    return {(row["device"], row["tag"].decode()): row["first_seq"] for row in await pg.fetch(TAGS, scope)}


async def scope_row(pg: Driver, scope: int) -> Any:
    return await pg.fetchrow("select * from scope where id = $1", scope)
