"""Entries of the three projections, as a batch of ops brings them (server.md §8)."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from app.sql.keys import op_id_text, raw_op_id, stream_key
from app.sql.transactions import Driver, Row
from app.sql.writes import Writes
from foldpoint.hlc import Hlc
from foldpoint.projections import Entry, Projection

#: Where an entry stands among all: what orders records.
Place = tuple[Hlc, str]


class StreamKey(NamedTuple):
    """A stream within a scope."""

    projection: int
    key: bytes

    @classmethod
    def named(cls, projection: Projection, name: str) -> "StreamKey":
        return cls(projection.number, stream_key(name))

    @classmethod
    def of(cls, entry: Entry) -> "StreamKey":
        return cls.named(entry.projection, entry.stream)


class Stream(NamedTuple):
    """How far a stream is: how many entries, the place of the last, and of the last that named it."""

    entries: int
    last: Place
    labelled: Place | None


class Held(NamedTuple):
    """What a batch meets: its streams that are there, and the places of its entries that are."""

    streams: dict[StreamKey, Stream]
    places: dict[tuple[StreamKey, bytes], Place]


def entry_with(projection: str, stream: str, name: str) -> str:
    """The SQL of the entry with an id, or of none."""
    return _row_with("entry", ("projection", "stream", "id"), (projection, stream, name))


def stream_with(projection: str, key: str, lock: str = "") -> str:
    """The SQL of the stream with a key, or of none; perhaps with a lock on its row, and on no other."""
    return _row_with("entry_stream", ("projection", "key"), (projection, key), lock)


def _row_with(table: str, columns: Sequence[str], values: Sequence[str], lock: str = "") -> str:
    """The SQL of the row of scope $1 with a primary key.

    Its order leaves the planner no index but the key's. Asked for one row by equality and without statistics, it may
    as well take another, in which it finds all entries of the stream, or all streams.
    """
    key, given = ", ".join(("scope", *columns)), ", ".join(("$1", *values))
    return f"(select * from {table} where ({key}) >= ({given}) and ({key}) <= ({given}) order by {key} limit 1 {lock})"


#: The rows are locked before anything is written: a snapshot that is being kept is there by the statement that drops
#: those below which something comes, or it is not kept.
STREAMS = f"""
select t.i, s.entries, s.wall_ms, s.counter, s.device_id, s.op_id,
       s.label_wall_ms, s.label_counter, s.label_device_id, s.label_op_id
from unnest($2::smallint[], $3::bytea[]) with ordinality as t(projection, key, i)
cross join lateral {stream_with("t.projection", "t.key", "for no key update")} s
"""
PLACES = f"""
select t.i, e.wall_ms, e.counter, e.op_id, d.id as device_id
from unnest($2::smallint[], $3::bytea[], $4::bytea[]) with ordinality as t(projection, stream, id, i)
cross join lateral {entry_with("t.projection", "t.stream", "t.id")} e
join device d on d.scope = $1 and d.no = e.device
"""


async def held(pg: Driver, scope: int, entries: Collection[Entry]) -> Held:
    """What is there of the streams and the entries of a batch."""
    streams = list(dict.fromkeys(map(StreamKey.of, entries)))
    slots = list(dict.fromkeys((StreamKey.of(entry), entry.id) for entry in entries))
    found = await pg.fetch(STREAMS, scope, *map(list, zip(*streams, strict=True)))
    keys = zip(*((*stream, name) for stream, name in slots), strict=True)
    places = await pg.fetch(PLACES, scope, *map(list, keys))
    return Held(
        {streams[row["i"] - 1]: _stream(row) for row in found},
        {slots[row["i"] - 1]: place_of(row) for row in places},
    )


def _stream(row: Row) -> Stream:
    labelled = None if row["label_wall_ms"] is None else place_of(row, "label_")
    return Stream(row["entries"], place_of(row), labelled)


def place_of(row: Row, prefix: str = "") -> Place:
    """The place in a row's wall_ms, counter, device_id and op_id."""
    wall_ms, counter, device_id, op_id = (row[prefix + name] for name in ("wall_ms", "counter", "device_id", "op_id"))
    return Hlc(wall_ms, counter, device_id.decode()), op_id_text(op_id)


def columns_of(place: Place) -> tuple[int, int, bytes, bytes]:
    """A place as `place_of` reads it."""
    hlc, op_id = place
    return hlc.wall_ms, hlc.counter, hlc.device_id.encode(), raw_op_id(op_id)


KNOWN = f"""
select t.id from unnest($4::bytea[]) as t(id) cross join lateral {entry_with("$2", "$3", "t.id")} e
"""


async def known(pg: Driver, scope: int, stream: StreamKey, ids: Iterable[str]) -> set[str]:
    """Which of these payload ids a stream has already."""
    rows = await pg.fetch(KNOWN, scope, *stream, [bytes.fromhex(name) for name in ids])
    return {row["id"].hex() for row in rows}


class Changed(NamedTuple):
    """What a batch does to a stream: new entries, its last place then, and the last label it gives, if any.

    `lowest` is the lowest place at which an entry came or went, if that is not above what was the last.
    """

    stream: StreamKey
    name: str
    new: int
    last: Place
    lowest: Place | None
    label: tuple[Place, str] | None

    def row(self, scope: int, *, begins: bool) -> tuple[Any, ...]:
        label: tuple[Any, ...] = (None,) * 6
        if self.label is not None:
            place, text = self.label
            label = text.encode(), stream_key(text), *columns_of(place)
        moved = begins or self.lowest is not None
        return scope, *self.stream, self.name.encode(), self.new, *columns_of(self.last), *label, moved


PUT = """
insert into entry (scope, wall_ms, counter, device, projection, stream, id, op_id, payload)
select * from unnest($1::int[], $2::bigint[], $3::bigint[], $4::int[], $5::smallint[], $6::bytea[], $7::bytea[],
                     $8::bytea[], $9::bytea[])
on conflict (scope, projection, stream, id) do update set
    wall_ms = excluded.wall_ms, counter = excluded.counter, device = excluded.device, op_id = excluded.op_id,
    payload = excluded.payload
"""
_LABEL = ("label", "label_key", "label_wall_ms", "label_counter", "label_device_id", "label_op_id")
_STREAM = ("scope", "projection", "key", "name", "entries", "wall_ms", "counter", "device_id", "op_id", *_LABEL)
#: A negative `late` leaves it as it is; the others never come again.
PUT_STREAMS = f"""
insert into entry_stream as s ({", ".join(_STREAM)}, late)
select {", ".join(_STREAM)}, case when moved then (random() * 1000000000000000)::bigint else -1 end
from unnest($1::int[], $2::smallint[], $3::bytea[], $4::bytea[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bytea[],
            $9::bytea[], $10::bytea[], $11::bytea[], $12::bigint[], $13::bigint[], $14::bytea[], $15::bytea[],
            $16::boolean[]) as w({", ".join(_STREAM)}, moved)
on conflict (scope, projection, key) do update set
    entries = s.entries + excluded.entries,
    late = case when excluded.late < 0 then s.late else excluded.late end,
    wall_ms = excluded.wall_ms, counter = excluded.counter, device_id = excluded.device_id, op_id = excluded.op_id,
    {", ".join(f"{name} = coalesce(excluded.{name}, s.{name})" for name in _LABEL)}
"""
DROP_SNAPSHOTS = """
delete from entry_snapshot s
using unnest($1::int[], $2::smallint[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bytea[], $7::bytea[])
    as w(scope, projection, stream, wall_ms, counter, device_id, op_id)
where s.scope = w.scope and s.projection = w.projection and s.stream = w.stream
  and (s.wall_ms, s.counter, s.device_id, s.op_id) >= (w.wall_ms, w.counter, w.device_id, w.op_id)
"""


def put(writes: Writes, scope: int, entries: Iterable[tuple[Entry, int]]) -> None:
    """Write entries, each with its device's number, in place of what was there of their ids."""
    writes.add(PUT, [_row(scope, entry, device) for entry, device in entries])


def _row(scope: int, entry: Entry, device: int) -> tuple[Any, ...]:
    wall_ms, counter, _ = entry.record.hlc
    stream = StreamKey.of(entry)
    return scope, wall_ms, counter, device, *stream, entry.id, raw_op_id(entry.record.op_id), entry.record.payload


def change(writes: Writes, scope: int, held: Held, changed: Sequence[Changed]) -> None:
    """Move streams on, and drop the snapshots that a late entry makes wrong."""
    writes.add(PUT_STREAMS, [one.row(scope, begins=one.stream not in held.streams) for one in changed])
    late = [(scope, *one.stream, *columns_of(one.lowest)) for one in changed if one.lowest is not None]
    writes.add(DROP_SNAPSHOTS, late)
