"""Devices: their chains' heads and floors, and what the roster says of them."""

from typing import Any, NamedTuple

import orjson
from sqlalchemy import Row, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.sql.keys import op_id_text, raw_op_id, slot_key
from app.sql.tables import device
from app.sql.transactions import Driver
from foldpoint.frontier import Covered
from foldpoint.hlc import Hlc
from foldpoint.relay import Acknowledged, Chain, RosterEntry

NOW_MS = "(extract(epoch from clock_timestamp()) * 1000)::bigint"


class Device(NamedTuple):
    """One device's chain. `scope_keys` are the slot keys of the scope tags it has used."""

    no: int
    chain: Chain
    scope_keys: frozenset[bytes] = frozenset()


LOAD = """
select d.no, d.id, d.head_seq, d.head_op_id, d.head_wall_ms, d.head_counter, d.dropped_below,
       array(select key from op_scope s where s.scope = d.scope and s.device = d.no) as scope_keys
from device d where d.scope = $1 and d.slug = $2
"""
ADD = "insert into device (scope, slug) values ($1, $2) on conflict do nothing"


async def load(pg: Driver, scope: int, slug: str) -> Device:
    """The device of a slug, added if it is new; call it under the scope's lock."""
    row = await pg.fetchrow(LOAD, scope, slug)
    if row is None:
        await pg.execute(ADD, scope, slug)
        row = await pg.fetchrow(LOAD, scope, slug)
        assert row is not None
    return Device(row["no"], chain_of(row), frozenset(row["scope_keys"]))


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
insert into device (scope, slug, enrolled_at_ms, last_seen_ms) values ($1, $2, {NOW_MS}, {NOW_MS})
on conflict (scope, slug) do update set
    last_seen_ms = greatest(device.last_seen_ms, excluded.last_seen_ms),
    enrolled_at_ms = coalesce(device.enrolled_at_ms, excluded.enrolled_at_ms)
returning no, last_seen_ms
"""
EVICT = """
update device set evicted = true
where scope = $1 and enrolled_at_ms is not null and not evicted and $2 - last_seen_ms > $3
"""


async def touch(pg: Driver, scope: int, slug: str, horizon_ms: int) -> int:
    """Note a device's contact, enrolling it if it is new, and evict the silent; returns its number (§11.1)."""
    row = await pg.fetchrow(TOUCH, scope, slug)
    assert row is not None
    if horizon_ms:
        await pg.execute(EVICT, scope, row["last_seen_ms"], horizon_ms)
    return int(row["no"])


#: A fork does not end by what the one of the two replicas pushes: it is shown until something else is refused.
FORKED = """starts_with(problem, '{"code":"chain_fork"')"""
ADVANCE = f"""
update device set id = $3, head_seq = $4, head_op_id = $5, head_wall_ms = $6, head_counter = $7,
    problem = case when {FORKED} then problem end, problem_at = case when {FORKED} then problem_at end
where scope = $1 and no = $2
"""
NAME_SCOPES = """
insert into op_scope (scope, device, key, tag, first_seq)
select $1, $2, * from unnest($3::bytea[], $4::bytea[], $5::bigint[]) on conflict do nothing
"""


async def advance(pg: Driver, scope: int, no: int, chain: Chain) -> None:
    """Move a chain's head, binding the slug to the raw id with the first op. What was refused before is over."""
    assert chain.device_id is not None
    assert chain.head is not None
    seq, hlc, op_id = chain.head
    await pg.execute(ADVANCE, scope, no, chain.device_id.encode(), seq, raw_op_id(op_id), hlc.wall_ms, hlc.counter)


async def name_scopes(pg: Driver, scope: int, no: int, first_seqs: dict[str, int]) -> None:
    """Remember at which seq a device first used these scope tags: a checkpoint lists those it covers."""
    rows = [(slot_key(tag), tag.encode(), seq) for tag, seq in first_seqs.items()]
    if rows:
        await pg.execute(NAME_SCOPES, scope, no, *zip(*rows, strict=True))


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


#: The text of a problem begins with its code; facts such as times differ from one try to the next.
PUT_PROBLEM = f"""
update device set problem = $3, problem_at = case
    when problem = $3 or split_part(problem, ',', 1) = split_part($3, ',', 1) and not {FORKED} then problem_at
    else clock_timestamp() end
where scope = $1 and no = $2
"""


async def put_problem(pg: Driver, scope: int, no: int, problem: str) -> None:
    """Remember why a device's last push was refused, and since when it is, for an admin to see."""
    await pg.execute(PUT_PROBLEM, scope, no, problem)
