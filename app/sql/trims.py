"""What retention asks of base rows, and does to them; and the note of each time it ran (server.md §5)."""

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from app.sql.keys import stream_key
from app.sql.rows import record_of
from app.sql.transactions import Driver, Row
from foldpoint.state import Record
from foldpoint.surfaces import Surface

FETCH = 500

#: Rows whose op is gone: what is above the floor is not trimmed.
BASE_ROWS = """
select r.key, r.wall_ms, r.counter, r.op_id, r.payload, d.id as device_id
from record r join device d on d.scope = $1 and d.no = r.device
where r.scope = $1 and r.surface = $2 and not exists (
    select from op o where o.scope = $1 and o.wall_ms = r.wall_ms and o.counter = r.counter
        and o.device = r.device and o.op_id = r.op_id
)
"""
#: Only those that no late op has replaced since. The lateral look-up keeps each key an index probe, whatever the
#: statistics say: there are none of a table that was filled just now.
STILL = """
select r.key, r.wall_ms, r.counter, r.op_id, r.payload, d.id as device_id
from unnest($3::bytea[], $4::bytea[]) as t(key, op_id)
cross join lateral (
    select key, wall_ms, counter, op_id, payload, device from record
    where scope = $1 and surface = $2 and kind = ''::bytea and key = t.key offset 0
) r
join device d on d.scope = $1 and d.no = r.device
where r.op_id = t.op_id
"""
DROP = """
delete from record where ctid = any(array(
    select r.at from unnest($3::bytea[]) as t(key) cross join lateral (
        select ctid as at from record
        where scope = $1 and surface = $2 and kind = ''::bytea and key = t.key offset 0
    ) r
))
"""
STUB = """
with found as materialized (
    select r.at, t.payload from unnest($3::bytea[], $4::bytea[]) as t(key, payload)
    cross join lateral (
        select ctid as at from record
        where scope = $1 and surface = $2 and kind = ''::bytea and key = t.key offset 0
    ) r
)
update record set payload = found.payload from found where record.ctid = found.at
"""


class BaseRow(NamedTuple):
    """A record below the floor; `key` is its stable key, `slot` that key as the table has it."""

    slot: bytes
    key: str
    record: Record


async def base_rows(pg: Driver, scope: int, surface: Surface) -> AsyncIterator[BaseRow]:
    """Every base row of a log, in no order."""
    cursor = await pg.cursor(BASE_ROWS, scope, surface.number)
    while rows := await cursor.fetch(FETCH):
        for row in rows:
            yield _base_row(surface, row)


async def still(pg: Driver, scope: int, surface: Surface, slots: Sequence[tuple[bytes, bytes]]) -> list[BaseRow]:
    """Those of these (slot, raw op id) that are as they were."""
    rows = await pg.fetch(STILL, scope, surface.number, *zip(*slots, strict=True))
    return [_base_row(surface, row) for row in rows]


def _base_row(surface: Surface, row: Row) -> BaseRow:
    record = record_of(row)
    return BaseRow(row["key"], "op:" + record.op_id if surface.event_stream else record.stable_key, record)


async def drop(pg: Driver, scope: int, surface: Surface, slots: Sequence[bytes]) -> None:
    await pg.execute(DROP, scope, surface.number, slots)


async def put_stubs(pg: Driver, scope: int, surface: Surface, stubs: Sequence[tuple[bytes, bytes]]) -> None:
    """Put these payloads into these slots."""
    if stubs:
        await pg.execute(STUB, scope, surface.number, *zip(*stubs, strict=True))


class Trim(NamedTuple):
    """One run of retention: the policy's text, and the time that ages were counted from."""

    no: int
    policy: str
    as_of_ms: int
    dropped: int
    tombstoned: int
    done: bool


COLUMNS = "no, policy, as_of_ms, dropped, tombstoned, done_at is not null as done"
LAST = f"select {COLUMNS} from trim where scope = $1 order by no desc limit 1"
BEGIN = f"""
insert into trim (scope, no, policy, as_of_ms)
select $1, coalesce(max(no), 0) + 1, $2, $3 from trim where scope = $1
returning {COLUMNS}
"""
COUNT = "update trim set dropped = dropped + $3, tombstoned = tombstoned + $4 where scope = $1 and no = $2"
DONE = "update trim set done_at = clock_timestamp() where scope = $1 and no = $2"


async def last(pg: Driver, scope: int) -> Trim | None:
    row = await pg.fetchrow(LAST, scope)
    return None if row is None else _trim(row)


async def unfinished(pg: Driver, scope: int) -> Trim | None:
    """The run that is under way, or was cut short."""
    found = await last(pg, scope)
    return None if found is None or found.done else found


async def cut_short(pg: Driver) -> list[int]:
    """The scopes in which a run is under way, or was cut short."""
    return [row["scope"] for row in await pg.fetch("select distinct scope from trim where done_at is null")]


async def begin(pg: Driver, scope: int, policy: str, as_of_ms: int) -> Trim:
    row = await pg.fetchrow(BEGIN, scope, policy, as_of_ms)
    assert row is not None
    return _trim(row)


def _trim(row: Row) -> Trim:
    return Trim(row["no"], row["policy"], int(row["as_of_ms"]), row["dropped"], row["tombstoned"], row["done"])


async def count(pg: Driver, scope: int, trim: int, dropped: int, tombstoned: int) -> None:
    await pg.execute(COUNT, scope, trim, dropped, tombstoned)


async def finish(pg: Driver, scope: int, trim: int) -> None:
    await pg.execute(DONE, scope, trim)


SHRINK = """
update stream set records = records - $4, first_wall_ms = $5, first_counter = $6, first_device = $7,
    last_wall_ms = $8, last_counter = $9, last_device = $10
where scope = $1 and surface = $2 and key = $3
"""


async def shrink(pg: Driver, scope: int, surface: Surface, name: str, gone: int, ends: tuple[Record, Record]) -> None:
    """So many records of a stream are gone; these are the first and the last now."""
    first, last_ = (record.hlc for record in ends)
    stamps = [part for hlc in (first, last_) for part in (hlc.wall_ms, hlc.counter, hlc.device_id.encode())]
    await pg.execute(SHRINK, scope, surface.number, stream_key(name), gone, *stamps)


FORGET = "delete from stream where scope = $1 and surface = $2 and key = $3"


async def forget(pg: Driver, scope: int, surface: Surface, name: str) -> None:
    """No record of a stream is left."""
    await pg.execute(FORGET, scope, surface.number, stream_key(name))
