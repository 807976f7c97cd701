"""The folded state of keyed surfaces: the records a batch touches, and what the fold made of them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from struct import Struct
from typing import Any, NamedTuple

from app.sql.copying import Copying
from app.sql.keys import is_short, raw_op_id, slot_key
from app.sql.rows import record_of
from app.sql.transactions import Driver
from app.sql.writes import Writes
from foldpoint.state import Record
from foldpoint.surfaces import Surface, kind_of, surface_of


class Slot(NamedTuple):
    """Where records of one surface tag and fold key compete."""

    tag: str
    key: str


def _place(tag: str) -> tuple[int, bytes]:
    """The surface and the kind of a tag's rows."""
    return surface_of(tag).number, slot_key(kind_of(tag))


#: The lateral look-up keeps each key an index probe, whatever the statistics say.
TOUCHED = """
select t.i, r.*, d.id as device_id
from unnest($2::smallint[], $3::bytea[], $4::bytea[]) with ordinality as t(surface, kind, key, i)
cross join lateral (
    select wall_ms, counter, device, op_id, payload from record
    where scope = $1 and surface = t.surface and kind = t.kind and key = t.key limit 1
) r
join device d on d.scope = $1 and d.no = r.device
"""


async def touched(pg: Driver, scope: int, slots: Collection[Slot]) -> dict[Slot, Record]:
    """The records now held in these slots."""
    if not slots:
        return {}
    asked = list(slots)
    places = {tag: _place(tag) for tag in {slot.tag for slot in asked}}
    columns = zip(*((*places[tag], slot_key(key)) for tag, key in asked), strict=True)
    rows = await pg.fetch(TOUCHED, scope, *columns)
    return {asked[row["i"] - 1]: record_of(row) for row in rows}


#: So many records are copied in; fewer go with the transaction's other writes.
MANY = 100
COLUMNS = ("scope", "wall_ms", "counter", "device", "surface", "kind", "key", "op_id", "payload")
#: An upsert though a winner's row may be there: its look-up is an index probe, whatever the statistics say.
PUT = """
insert into record (scope, wall_ms, counter, device, surface, kind, key, op_id, payload)
select * from unnest($1::int[], $2::bigint[], $3::bigint[], $4::int[], $5::smallint[], $6::bytea[], $7::bytea[],
                     $8::bytea[], $9::bytea[])
on conflict (scope, surface, kind, key) do update set
    wall_ms = excluded.wall_ms, counter = excluded.counter, device = excluded.device,
    op_id = excluded.op_id, payload = excluded.payload
"""
NAME_KINDS = """
insert into registry_kind (scope, key, name) select * from unnest($1::int[], $2::bytea[], $3::bytea[])
on conflict do nothing
"""


class Winner(NamedTuple):
    """The record that now holds a key, and its device's number; a `new` one's slot was empty."""

    key: str
    record: Record
    device: int
    new: bool


#: A row of `COLUMNS`.
Row = tuple[int, int, int, int, int, bytes, bytes, bytes, bytes]


async def put(pg: Driver, writes: Writes, scope: int, winners: Mapping[str, Iterable[Winner]]) -> None:
    """Write each tag's winners, many new ones at once."""
    new: list[Row] = []
    held: list[Row] = []
    for tag, of_tag in winners.items():
        place = _place(tag)
        for key, record, device, is_new in of_tag:
            wall_ms, counter, _ = record.hlc
            row = scope, wall_ms, counter, device, *place, slot_key(key), raw_op_id(record.op_id), record.payload
            (new if is_new else held).append(row)
    if len(new) < MANY:
        writes.add(PUT, new)
    else:
        async with Copying(pg, "record", COLUMNS) as copying:
            await copying.add(_binary(new))
    writes.add(PUT, held)


#: The first five columns as COPY reads them: how many there are, then each one's length and value.
_FIXED = Struct(">h ii iq iq ii ih").pack


def _binary(rows: Sequence[Row]) -> bytes:
    parts: list[bytes] = []
    for scope, wall_ms, counter, device, surface, *texts in rows:
        parts.append(_FIXED(9, 4, scope, 8, wall_ms, 8, counter, 4, device, 2, surface))
        for text in texts:
            parts += (len(text).to_bytes(4), text)
    return b"".join(parts)


class Event(NamedTuple):
    """A record of an event stream whose op's row holds an envelope."""

    surface: Surface
    stream: bytes
    record: Record
    device: int


EVENT_COLUMNS = ("scope", "wall_ms", "counter", "device", "surface", "kind", "key", "stream", "op_id", "payload")
PUT_EVENTS = """
insert into record (scope, wall_ms, counter, device, surface, kind, key, stream, op_id, payload)
select * from unnest($1::int[], $2::bigint[], $3::bigint[], $4::int[], $5::smallint[], $6::bytea[], $7::bytea[],
                     $8::bytea[], $9::bytea[], $10::bytea[])
"""


async def put_events(pg: Driver, writes: Writes, scope: int, events: Sequence[Event]) -> None:
    """Write records of event streams, many at once, as base rows are written; none is there yet."""
    rows = [(scope, *_event_row(event)) for event in events]
    if len(rows) < MANY:
        writes.add(PUT_EVENTS, rows)
    else:
        await pg.copy_records_to_table("record", records=rows, columns=EVENT_COLUMNS)


def _event_row(event: Event) -> tuple[Any, ...]:
    surface, stream, record, device = event
    op_id = raw_op_id(record.op_id)
    return *record.hlc[:2], device, surface.number, b"", op_id, stream, op_id, record.payload


def name_kinds(writes: Writes, scope: int, kinds: Iterable[str]) -> None:
    """Remember the names of kinds that are too long to be their own slot key."""
    keys = ((slot_key(kind), kind.encode()) for kind in set(kinds))
    writes.add(NAME_KINDS, [(scope, key, name) for key, name in keys if not is_short(key)])
