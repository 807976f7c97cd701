"""Streams of the three projections as they are read: a snapshot, and the entries above it."""

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from app.sql.entries import Place, StreamKey, columns_of, entry_with, place_of, stream_with
from app.sql.keys import slot_key
from app.sql.pages import pages, small
from app.sql.rows import record_of
from app.sql.transactions import Driver, Row
from foldpoint.hlc import Hlc
from foldpoint.projections import Projection
from foldpoint.state import Record
from foldpoint.surfaces import registry

#: A late entry leaves the snapshots below it. Of those further down than the last so many times as far stay: few of a
#: long stream, near its end and far from it.
THINNING = 8


class Stream(NamedTuple):
    """A stream as a reader finds it; `late` changes once something comes or goes below its last entry."""

    name: str
    entries: int
    late: int
    last: Place
    label: str | None


_COLUMNS_OF_STREAM = "name, entries, late, wall_ms, counter, device_id, op_id, label"
_STREAM = f"select {_COLUMNS_OF_STREAM} from entry_stream"
ONE_STREAM = f"select {_COLUMNS_OF_STREAM} from {stream_with('$2', '$3')} s"


def _stream(row: Row) -> Stream:
    label = None if row["label"] is None else row["label"].decode()
    return Stream(row["name"].decode(), row["entries"], row["late"], place_of(row), label)


async def stream(pg: Driver, scope: int, key: StreamKey) -> Stream | None:
    row = await pg.fetchrow(ONE_STREAM, scope, *key)
    return None if row is None else _stream(row)


#: The length of a large payload is known without reading it.
LONG = f"""
select s.entries >= $4::bigint or (
    select sum(length(payload)) >= $5::bigint from entry where scope = $1 and projection = $2 and stream = $3
)
from {stream_with("$2", "$3")} s
"""


async def is_long(pg: Driver, scope: int, key: StreamKey, entries: int, size: int) -> bool:
    """Whether a stream has so many entries, or so many bytes of them."""
    return bool(await pg.fetchval(LONG, scope, *key, entries, size))


LISTED = f"""
{_STREAM} where scope = $1 and projection = $2
  and ($3::bytea is null or (substr(name, 1, 224), name) > (substr($3, 1, 224), $3))
order by substr(name, 1, 224), name limit $4::bigint
"""


async def listed(pg: Driver, scope: int, projection: int, after: bytes | None, limit: int) -> list[Stream]:
    """Streams by name in byte order, those after a name."""
    return [_stream(row) for row in await pg.fetch(LISTED, scope, projection, after, limit)]


LABELLED = f"""
{_STREAM} where scope = $1 and projection = $2 and label_key = $3 and label = $4
order by label_wall_ms desc, label_counter desc, label_device_id desc, label_op_id desc limit $5::bigint
"""


async def labelled(pg: Driver, scope: int, projection: int, label_key: bytes, label: str, limit: int) -> list[Stream]:
    """The streams whose last label this is, the one that took it last first."""
    return [_stream(row) for row in await pg.fetch(LABELLED, scope, projection, label_key, label.encode(), limit)]


async def name_of(pg: Driver, scope: int, key: StreamKey) -> bytes | None:
    """The name of the stream with this key."""
    name: bytes | None = await pg.fetchval(ONE_STREAM, scope, *key)
    return name


#: A closed envelope has no id, so its record is keyed by its content.
CLOSED = """
select o.body from record r
join op o on o.scope = $1 and o.wall_ms = r.wall_ms and o.counter = r.counter and o.device = r.device
    and o.op_id = r.op_id
where r.scope = $1 and r.surface = $2 and r.kind = $3 and r.key >= 'h:'::bytea and r.key < 'h;'::bytea
  and starts_with(encode(substr(r.payload, 1, 12), 'escape'), '{"car_enc":')
"""


async def closed(pg: Driver, scope: int, projection: Projection) -> AsyncIterator[bytes]:
    """The ops of a projection that an unlocked scope folds as closed envelopes."""
    async for row in pg.cursor(CLOSED, scope, registry.SURFACE.number, slot_key(projection.kind)):
        yield row["body"]


NUMBERS = """
select id, entries from entry_snapshot where scope = $1 and projection = $2 and stream = $3
order by wall_ms desc, counter desc, device_id desc, op_id desc
"""


async def numbers(pg: Driver, scope: int, key: StreamKey) -> list[int]:
    """The numbers of a stream's snapshots, the latest first."""
    return [row["id"] for row in await pg.fetch(NUMBERS, scope, *key)]


async def body(pg: Driver, scope: int, number: int) -> bytes | None:
    """The text of a snapshot; None if it is gone by now."""
    text: bytes | None = await pg.fetchval(
        "select body from entry_snapshot where scope = $1 and id = $2", scope, number
    )
    return text


COLUMNS = "e.wall_ms, e.counter, d.id as device_id, e.op_id, e.id"


def in_order(those: str) -> str:
    """The SQL of those entries of a stream, in order, as `records` reads them."""
    return f"""
    select {COLUMNS}, {small("e.payload", "e.payload")}
    from entry e join device d on d.scope = $1 and d.no = e.device
    where e.scope = $1 and e.projection = $2 and e.stream = $3 and {those}
    order by e.wall_ms, e.counter, d.id, e.op_id
    """


ABOVE = in_order("(e.wall_ms, e.counter) >= ($4, $5) and (e.wall_ms, e.counter, d.id, e.op_id) > ($4, $5, $6, $7)")
BETWEEN = in_order(
    "(e.wall_ms, e.counter) >= ($4, $5) and (e.wall_ms, e.counter, d.id, e.op_id) > ($4, $5, $6, $7)"
    " and (e.wall_ms, e.counter) <= ($8, $9) and (e.wall_ms, e.counter, d.id, e.op_id) <= ($8, $9, $10, $11)"
)
PAYLOAD = f"select payload from {entry_with('$2', '$3', '$4')} e"
#: Below every place.
START: Place = (Hlc(0, 0, ""), "op-")


async def records(pg: Driver, query: str, scope: int, key: StreamKey, *more: Any) -> AsyncIterator[list[Record]]:
    """The entries of a stream that a query of `in_order` gives, a page in memory at a time."""

    async def payload(row: Row) -> bytes:
        text: bytes = await pg.fetchval(PAYLOAD, scope, *key, row["id"])
        return text

    async for rows in pages(pg, query, scope, *key, *more, payload_of=payload):
        yield [record_of(row) for row in rows]


def above(pg: Driver, scope: int, key: StreamKey, place: Place | None) -> AsyncIterator[list[Record]]:
    """The entries of a stream above a place, in order, a page in memory at a time."""
    return records(pg, ABOVE, scope, key, *columns_of(START if place is None else place))


def between(pg: Driver, scope: int, key: StreamKey, place: Place | None, through: Place) -> AsyncIterator[list[Record]]:
    """As `above`, up to another place."""
    return records(pg, BETWEEN, scope, key, *columns_of(START if place is None else place), *columns_of(through))


#: Only while nothing came or went below the place since the stream was read: a push that changes the row is waited for.
KEEP = f"""
insert into entry_snapshot (scope, projection, stream, wall_ms, counter, device_id, op_id, body, entries)
select s.scope, s.projection, s.key, $5::bigint, $6::bigint, $7::bytea, $8::bytea, $9::bytea, $10::bigint
from {stream_with("$2", "$3", "for share")} s
where s.late = $4 and not exists (
    select from entry_snapshot o where o.scope = $1 and o.projection = $2 and o.stream = $3
    and (o.wall_ms, o.counter, o.device_id, o.op_id) = ($5::bigint, $6::bigint, $7::bytea, $8::bytea)
)
"""
DROP = "delete from entry_snapshot where scope = $1 and id = any($2::bigint[])"


class Made(NamedTuple):
    """A snapshot at a place, of a stream that had so many entries when it was read at `late`."""

    key: StreamKey
    late: int
    place: Place
    entries: int
    text: bytes


async def keep(pg: Driver, scope: int, made: Made, unreadable: list[int]) -> None:
    """Keep a snapshot unless it is wrong by now; those that could not be read go, and of the others all but a few."""
    if unreadable:  # first, as one of them may be of this place
        await pg.execute(DROP, scope, unreadable)
    columns: tuple[Any, ...] = columns_of(made.place)
    await pg.execute(KEEP, scope, *made.key, made.late, *columns, made.text, made.entries)
    held = [(row["id"], row["entries"]) for row in await pg.fetch(NUMBERS, scope, *made.key)]
    await pg.execute(DROP, scope, thinned(held))


def thinned(held: list[tuple[int, int]]) -> list[int]:
    """Which snapshots go, of those given the latest first by number and entries."""
    gone, reach = [], 0
    for number, entries in held[1:]:
        distance = held[0][1] - entries
        if distance > reach:
            reach = max(distance, 1) * THINNING
        else:
            gone.append(number)
    return gone
