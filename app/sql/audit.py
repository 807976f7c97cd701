"""Reads that only `verify` makes: everything that is stored of a scope, in an order that can be checked."""

from collections.abc import AsyncIterable
from typing import Any

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
ENTRIES = """
select e.projection, e.stream, e.id, e.wall_ms, e.counter, d.id as device_id, e.op_id, sha256(e.payload) as digest
from entry e join device d on d.scope = e.scope and d.no = e.device where e.scope = $1
"""
ENTRY_STREAMS = """
select projection, key, name, entries, wall_ms, counter, device_id, op_id from entry_stream where scope = $1
"""
ENTRY_SNAPSHOTS = """
select n.stream, n.wall_ms, n.counter, n.device_id, n.op_id, n.body, s.name
from entry_snapshot n
join entry_stream s on s.scope = n.scope and s.projection = n.projection and s.key = n.stream
where n.scope = $1 and n.projection = $2
"""
CLAIMS = "select stream, entry from journal_claim where scope = $1"
TAGS = "select device, tag, first_seq from op_scope where scope = $1"


def ops(pg: Driver, scope: int) -> AsyncIterable[Row]:
    """Every op row, device by device, by seq."""
    return pg.cursor(OPS, scope, prefetch=500)


async def floors(pg: Driver, scope: int) -> list[Row]:
    return await pg.fetch(FLOORS, scope)


async def seen(pg: Driver, scope: int) -> list[Row]:
    return await pg.fetch(SEEN, scope)


async def entries(pg: Driver, scope: int) -> list[Row]:
    """Every entry, its payload as a hash."""
    return await pg.fetch(ENTRIES, scope)


async def entry_streams(pg: Driver, scope: int) -> list[Row]:
    return await pg.fetch(ENTRY_STREAMS, scope)


async def entry_snapshots(pg: Driver, scope: int, projection: int) -> list[Row]:
    return await pg.fetch(ENTRY_SNAPSHOTS, scope, projection)


async def claims(pg: Driver, scope: int) -> set[tuple[bytes, bytes]]:
    """The queue entries that were handed out, by stream key and id."""
    return {(row["stream"], row["entry"]) for row in await pg.fetch(CLAIMS, scope)}


async def unfounded_resets(pg: Driver, scope: int) -> list[Row]:
    return await pg.fetch(UNFOUNDED_RESETS, scope)


async def first_seqs(pg: Driver, scope: int) -> dict[tuple[int, str], int]:
    return {(row["device"], row["tag"].decode()): row["first_seq"] for row in await pg.fetch(TAGS, scope)}


async def scope_row(pg: Driver, scope: int) -> Any:
    return await pg.fetchrow("select * from scope where id = $1", scope)
