"""The folded state in canonical order, streamed: a page of rows in memory at a time."""

from collections.abc import AsyncIterable, AsyncIterator
from typing import NamedTuple

from app.sql.intents import COMMITTED, RUNS
from app.sql.keys import PREFIX, is_short
from app.sql.rows import record_of
from app.sql.transactions import Driver, Row
from foldpoint.state import Record
from foldpoint.surfaces import BY_NAME, Surface, Tier, tag_of

PREFETCH = 500

EVENTS = """
select e.*, d.id as device_id from (
    select op_id, wall_ms, counter, device, substr(body, payload_at + 1, length(body) - payload_at - 1) as payload
    from op where scope = $1 and surface = $2
    union all
    select op_id, wall_ms, counter, device, payload from record where scope = $1 and surface = $2
) e join device d on d.no = e.device
order by op_id
"""
KEYED = """
select r.key, r.op_id, r.wall_ms, r.counter, r.payload, d.id as device_id
from record r join device d on d.no = r.device
where r.scope = $1 and r.surface = $2 and r.kind = $3
order by r.key
"""
KINDS = """
select k.kind, n.name from (select distinct kind from record where scope = $1 and surface = $2) k
left join registry_kind n on n.scope = $1 and n.key = k.kind
"""
AGENTS = "select key, name, fencing_epoch from agent where scope = $1 order by name"
INTENTS = """
select i.key, i.op_id, i.wall_ms, i.counter, i.payload, d.id as device_id
from intent i join device d on d.no = i.device
where i.scope = $1 and i.agent = $2 and i.view = $3
order by i.key
"""
LOGS = sorted(name for name, surface in BY_NAME.items() if surface.tier is Tier.GROW_ONLY)


class Agent(NamedTuple):
    """An agent with its fence; `key` is where its intents are."""

    name: str
    key: bytes
    fencing_epoch: int


async def log(pg: Driver, scope: int, surface: Surface) -> AsyncIterator[tuple[str, Record]]:
    """One log's entries by fold key, in key order."""
    if surface.event_stream:
        async for row in pg.cursor(EVENTS, scope, surface.number, prefetch=PREFETCH):
            record = record_of(row)
            yield "op:" + record.op_id, record
    else:
        async for entry in _by_key(pg.cursor(KEYED, scope, surface.number, b"", prefetch=PREFETCH)):
            yield entry


async def registry_kinds(pg: Driver, scope: int) -> list[tuple[str, Surface, bytes]]:
    """The registries that have records, by tag in byte order, with the slot key of their kind."""
    found = []
    for surface in BY_NAME.values():
        if surface.tier is Tier.REGISTRY:
            for row in await pg.fetch(KINDS, scope, surface.number):
                name = row["kind"] if is_short(row["kind"]) else row["name"]
                found.append((tag_of(surface, name.decode()), surface, row["kind"]))
    return sorted(found, key=lambda entry: entry[0])


def entries(pg: Driver, scope: int, surface: Surface, kind: bytes) -> AsyncIterator[tuple[str, Record]]:
    """One registry's entries by fold key, in key order."""
    return _by_key(pg.cursor(KEYED, scope, surface.number, kind, prefetch=PREFETCH))


async def agents(pg: Driver, scope: int) -> list[Agent]:
    """Every agent, by name in byte order."""
    rows = await pg.fetch(AGENTS, scope)
    return [Agent(row["name"].decode(), row["key"], int(row["fencing_epoch"])) for row in rows]


def committed(pg: Driver, scope: int, agent: bytes) -> AsyncIterator[tuple[str, Record]]:
    return _by_key(pg.cursor(INTENTS, scope, agent, COMMITTED, prefetch=PREFETCH))


def runs(pg: Driver, scope: int, agent: bytes) -> AsyncIterator[tuple[str, Record]]:
    return _by_key(pg.cursor(INTENTS, scope, agent, RUNS, prefetch=PREFETCH))


async def _by_key(rows: AsyncIterable[Row]) -> AsyncIterator[tuple[str, Record]]:
    """Entries by fold key; slot keys order them but for long ones, whose neighbours are sorted here."""
    alike: list[tuple[str, Record]] = []
    prefix = b""
    async for row in rows:
        if row["key"][:PREFIX] != prefix:
            for entry in sorted(alike):
                yield entry
            alike, prefix = [], row["key"][:PREFIX]
        record = record_of(row)
        alike.append((record.stable_key, record))
    for entry in sorted(alike):
        yield entry
