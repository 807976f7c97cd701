"""Devices: their chains' heads and floors, and what the roster says of them."""

from typing import Any

import orjson
from sqlalchemy import Row, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.sql.keys import op_id_text
from app.sql.tables import device
from app.sql.transactions import Driver
from foldpoint.frontier import Covered
from foldpoint.hlc import Hlc
from foldpoint.relay import Acknowledged, Chain, RosterEntry

NOW_MS = "(extract(epoch from clock_timestamp()) * 1000)::bigint"


def chain_of(row: Any) -> Chain:
    """The chain in a device row."""
    if row["id"] is None:
        return Chain(None)
    device_id = row["id"].decode()
    if row["head_seq"] is None:
        return Chain(device_id)
    hlc = Hlc(row["head_wall_ms"], row["head_counter"], device_id)
    return Chain(device_id, Covered(row["head_seq"], hlc, op_id_text(row["head_op_id"])), row["dropped_below"])


TOUCH = f"""
update device set last_seen_ms = greatest(last_seen_ms, {NOW_MS}), enrolled_at_ms = coalesce(enrolled_at_ms, {NOW_MS})
where scope = $1 and slug = $2 returning no
"""
ENROLL = f"""
insert into device (scope, slug, enrolled_at_ms, last_seen_ms) values ($1, $2, {NOW_MS}, {NOW_MS})
on conflict (scope, slug) do update set
    last_seen_ms = greatest(device.last_seen_ms, excluded.last_seen_ms),
    enrolled_at_ms = coalesce(device.enrolled_at_ms, excluded.enrolled_at_ms)
returning no
"""
#: Who is locked is in contact just now.
EVICT = f"""
update device d set evicted = true
from (
    select no from device
    where scope = $1 and enrolled_at_ms is not null and not evicted and {NOW_MS} - last_seen_ms > $2
    for no key update skip locked
) silent
where d.scope = $1 and d.no = silent.no
"""


async def touch(pg: Driver, scope: int, slug: str, horizon_ms: int) -> int:
    """Note a device's contact, enrolling it if it is new, and evict the silent; returns its number (§11.1)."""
    no = await pg.fetchval(TOUCH, scope, slug)
    if no is None:  # the upsert alone would use up a device number per contact
        no = await pg.fetchval(ENROLL, scope, slug)
    await evict(pg, scope, horizon_ms)
    return int(no)


async def evict(pg: Driver, scope: int, horizon_ms: int) -> None:
    """Evict who was silent for longer; 0 evicts nobody."""
    if horizon_ms:
        await pg.execute(EVICT, scope, horizon_ms)


CHAINS = """
select no, id, head_seq, head_op_id, head_wall_ms, head_counter, dropped_below
from device where scope = $1 and id is not null and head_seq is not null order by id
"""


async def chains(pg: Driver, scope: int) -> dict[int, Chain]:
    """Every chain by device number, in byte order of the device ids."""
    return {row["no"]: chain_of(row) for row in await pg.fetch(CHAINS, scope)}


def roster_entry(row: Row[Any]) -> RosterEntry:
    """A device that was never named by an op is known by its slug."""
    acked = None
    if row.acked_wall_ms is not None:
        acked = Hlc(int(row.acked_wall_ms), row.acked_counter, row.acked_device.decode())
    name = row.slug if row.id is None else row.id.decode()
    return RosterEntry(name, row.enrolled_at_ms, row.last_seen_ms, acked, row.evicted)


async def roster(connection: AsyncConnection, scope: int) -> dict[int, RosterEntry]:
    """The roster by device number, in byte order of the names."""
    query = select(device).where(device.c.scope == scope, device.c.enrolled_at_ms.is_not(None))
    entries = {row.no: roster_entry(row) for row in await connection.execute(query)}
    return dict(sorted(entries.items(), key=lambda item: item[1].device_id))


async def reports(connection: AsyncConnection, scope: int) -> list[dict[str, Any]]:
    """Every device as an admin needs to see it, in byte order of the names."""
    rows = await connection.execute(select(device).where(device.c.scope == scope))
    return sorted((_report(row) for row in rows), key=lambda report: str(report["device_id"]))


def _report(row: Row[Any]) -> dict[str, Any]:
    chain = chain_of(row._mapping)
    entry = None if row.enrolled_at_ms is None else roster_entry(row).to_json()
    return {
        "device_id": row.slug if row.id is None else row.id.decode(),
        "slug": row.slug,
        "head": chain.head and chain.head.to_json(),
        "dropped_below": chain.dropped_below,
        "roster": entry,
        "acked_at_ms": row.acked_at_ms,
        "problem": problem_of(row),
    }


def problem_of(row: Row[Any]) -> dict[str, Any] | None:
    """What is refused, and since when."""
    return None if row.problem is None else {**orjson.loads(row.problem), "at": row.problem_at}


async def put_ack(connection: AsyncConnection, scope: int, no: int, outcome: Acknowledged) -> None:
    """Write an ack, and when it was the first to say so much."""
    assert outcome.entry.acked is not None
    wall_ms, counter, device_id = outcome.entry.acked
    changed = {
        device.c.acked_wall_ms: wall_ms,
        device.c.acked_counter: counter,
        device.c.acked_device: device_id.encode(),
        device.c.evicted: outcome.entry.evicted,
    }
    if outcome.advanced:
        changed[device.c.acked_at_ms] = text(NOW_MS)
    await connection.execute(update(device).where(device.c.scope == scope, device.c.no == no).values(changed))
