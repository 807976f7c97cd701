"""The op table: append, dedupe, and reads by frontier. No statement orders by arrival."""

from collections.abc import AsyncIterator, Mapping, Sequence
from struct import Struct
from typing import NamedTuple, Self

import orjson

from app.sql.copying import NULL, Copying
from app.sql.keys import op_id_text
from app.sql.transactions import Driver
from app.sql.writes import Writes
from foldpoint.frontier import Covered
from foldpoint.hlc import Hlc
from foldpoint.surfaces import Surface

#: An op as a row of `COLUMNS`. `payload_at` is where the payload's text begins in the body, `stream` the key of the
#: stream of an op that is its own record.
NewOp = tuple[int, int, int, int, int, int, int, bytes, bytes | None, bytes]


#: The SQL of the payload of a row of `op`.
OP_PAYLOAD = "substr(body, payload_at + 1, length(body) - payload_at - 1)"


class Span(NamedTuple):
    """The ops of one device with `after` < seq <= `upto`."""

    device: int
    after: int
    upto: int


#: So many ops are copied in; fewer go with the transaction's other writes.
MANY = 100
COLUMNS = (
    "scope", "wall_ms", "counter", "seq", "device", "payload_at", "surface", "op_id", "stream", "body",
)  # fmt: skip
INSERT = f"""
insert into op ({", ".join(COLUMNS)})
select * from unnest($1::int[], $2::bigint[], $3::bigint[], $4::bigint[], $5::int[], $6::int[], $7::smallint[],
                     $8::bytea[], $9::bytea[], $10::bytea[])
"""


class Appending:
    """Puts in ops that the chain check admitted under the scope's lock, so that none can conflict.

    Many are copied in while the caller goes on; nothing else may use the connection before `finish`.
    """

    def __init__(self, pg: Driver, writes: Writes) -> None:
        self._pg, self._writes = pg, writes
        self._copying: Copying | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.finish()

    async def start(self, rows: Sequence[NewOp]) -> None:
        if self._copying is None and len(rows) < MANY:
            self._writes.add(INSERT, rows)
            return
        if self._copying is None:
            self._copying = Copying(self._pg, "op", COLUMNS)
        await self._copying.add(_binary(rows))

    async def finish(self) -> None:
        """Wait until what was started is in."""
        if (copying := self._copying) is not None:
            self._copying = None
            await copying.finish()


#: The first eight columns as COPY reads them: how many there are, then each one's length and value.
_FIXED = Struct(">h ii iq iq iq ii ii ih i16s").pack


def _binary(rows: Sequence[NewOp]) -> bytes:
    """A third of what the driver needs, which looks up the type of every value."""
    parts: list[bytes] = []
    for scope, wall_ms, counter, seq, device, payload_at, surface, op_id, stream, body in rows:
        parts += (
            _FIXED(10, 4, scope, 8, wall_ms, 8, counter, 8, seq, 4, device, 4, payload_at, 2, surface, 16, op_id),
            NULL if stream is None else len(stream).to_bytes(4) + stream,
            len(body).to_bytes(4),
            body,
        )
    return b"".join(parts)


#: A page of large ops ends once it holds about so much.
PAGE_BYTES = 4 * 1024 * 1024
#: However many devices there are, each may give so many ops, and so much, to a page.
EACH = 64
LEAST_BYTES = 32 * 1024

HELD = """
select o.seq, o.op_id from unnest($3::bigint[]) as s(seq)
cross join lateral (select seq, op_id from op where scope = $1 and device = $2 and seq = s.seq limit 1) o
"""


async def held_ids(pg: Driver, scope: int, device: int, seqs: Sequence[int]) -> dict[int, bytes]:
    """The raw op ids held at these seqs."""
    return {row["seq"]: row["op_id"] for row in await pg.fetch(HELD, scope, device, seqs)}


#: Each device gives at most $5 ops and about $6 bytes. A page ends after $7 ops, or at the smallest stamp at which
#: a device was cut short: either way it is a per-device prefix of what remains, and costs the same wherever it begins.
PAGE = """
with part as materialized (
    select o.*, d.id as device_id,
           row_number() over in_device as place, sum(length(o.body)) over in_device as bytes
    from unnest($2::int[], $3::bigint[], $4::bigint[]) as s(device, after, upto)
    join device d on d.scope = $1 and d.no = s.device
    cross join lateral (
        select wall_ms, counter, device, op_id, seq, body from op
        where scope = $1 and device = s.device and seq > s.after and seq <= s.upto
        order by seq limit $5
    ) o
    window in_device as (partition by o.device order by o.seq)
), cut as (
    select wall_ms, counter, device_id from part where place = $5 or bytes >= $6
    order by wall_ms, counter, device_id limit 1
), page as (
    select * from part
    where not exists (select from cut)
       or (wall_ms, counter, device_id) <= (select wall_ms, counter, device_id from cut)
    order by wall_ms, counter, device_id, op_id limit $7
)
"""

PAGE_TEXT = (
    PAGE
    + """
select string_agg(body, $8 order by wall_ms, counter, device_id, op_id) as body, count(*) as ops,
       (select jsonb_object_agg(device, last) from (select device, max(seq) as last from page group by 1) m)::text
         as reached
from page
"""
)


#: The same of one device, whose ops are in seq order as they are in (hlc, op_id) order: one walk along an index, and a
#: third of the time.
PAGE_TEXT_OF_ONE = """
select string_agg(body, $7 order by seq) as body, count(*) as ops, max(seq) as reached from (
    select seq, body, sum(length(body)) over (order by seq rows unbounded preceding) - length(body) as before
    from (
        select seq, body from op where scope = $1 and device = $2 and seq > $3 and seq <= $4 order by seq limit $5
    ) part
) page where before < $6
"""


class Page(NamedTuple):
    """Op texts in (hlc, op_id) order, joined; `reached` is the highest seq of each device in it."""

    body: bytes
    ops: int
    reached: dict[int, int]


async def page(pg: Driver, scope: int, spans: Sequence[Span], limit: int, separator: bytes) -> Page:
    """The next ops of these spans: between one and about `limit` of them, none only if none is left."""
    spans = [span for span in spans if span.after < span.upto]
    if not spans:
        return Page(b"", 0, {})
    if len(spans) == 1:
        return await _page_of_one(pg, scope, spans[0], limit, separator)
    row = await pg.fetchrow(PAGE_TEXT, scope, *_columns(spans, limit), separator)
    assert row is not None
    reached = orjson.loads(row["reached"] or "{}")
    return Page(row["body"] or b"", row["ops"], {int(device): seq for device, seq in reached.items()})


async def _page_of_one(pg: Driver, scope: int, span: Span, limit: int, separator: bytes) -> Page:
    row = await pg.fetchrow(PAGE_TEXT_OF_ONE, scope, *span, limit, PAGE_BYTES, separator)
    assert row is not None
    return Page(row["body"] or b"", row["ops"], {span.device: row["reached"]} if row["ops"] else {})


BODIES = PAGE + "select device, seq, body from page order by wall_ms, counter, device_id, op_id"


AT = "select op_id, wall_ms, counter from op where scope = $1 and device = $2 and seq = $3"


async def covered_at(pg: Driver, scope: int, device: int, device_id: str, seq: int) -> Covered | None:
    """The op of a device at a seq, as a checkpoint names it; None if it is not held."""
    row = await pg.fetchrow(AT, scope, device, seq)
    if row is None:
        return None
    return Covered(seq, Hlc(row["wall_ms"], row["counter"], device_id), op_id_text(row["op_id"]))


IDS = "select op_id from op where scope = $1 and device = $2 and seq > $3 and seq <= $4 order by seq"


async def ids(pg: Driver, scope: int, span: Span) -> AsyncIterator[bytes]:
    """The raw op ids of a span, in seq order."""
    cursor = await pg.cursor(IDS, scope, *span)
    while rows := await cursor.fetch(10_000):
        for row in rows:
            yield row["op_id"]


NAMING = """
select o.body from unnest($2::int[], $3::bigint[], $4::bigint[]) as s(device, after, upto)
cross join lateral (
    select body from op where scope = $1 and device = s.device and seq > s.after and seq <= s.upto
        and surface = $5 and position($6 in body) > 0
) o
"""


async def naming(
    pg: Driver, scope: int, spans: Sequence[Span], surface: Surface, field: str, value: str
) -> list[bytes]:
    """The ops of a surface in these spans in whose text a field has this string, at whatever depth."""
    columns = ([getattr(span, name) for span in spans] for name in Span._fields)
    member = b"%b:%b" % (orjson.dumps(field), orjson.dumps(value))
    return [row["body"] for row in await pg.fetch(NAMING, scope, *columns, surface.number, member)]


OF_SURFACE = """
select o.body from unnest($2::int[], $3::bigint[], $4::bigint[]) as s(device, after, upto)
cross join lateral (
    select body from op where scope = $1 and device = s.device and seq > s.after and seq <= s.upto and surface = $5
) o
"""


async def of_surface(pg: Driver, scope: int, spans: Sequence[Span], surface: Surface) -> list[bytes]:
    """The ops of a surface in these spans."""
    columns = ([getattr(span, name) for span in spans] for name in Span._fields)
    return [row["body"] for row in await pg.fetch(OF_SURFACE, scope, *columns, surface.number)]


STAMPS = """
select s.device, o.wall_ms, o.counter from unnest($2::int[], $3::bigint[]) as s(device, seq)
cross join lateral (select wall_ms, counter from op where scope = $1 and device = s.device and seq = s.seq limit 1) o
"""


async def stamps(pg: Driver, scope: int, seqs: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """The stamp of each device's op at a seq, where it is held."""
    rows = await pg.fetch(STAMPS, scope, list(seqs), list(seqs.values()))
    return {row["device"]: (row["wall_ms"], row["counter"]) for row in rows}


async def bodies(pg: Driver, scope: int, spans: Sequence[Span], limit: int) -> tuple[list[bytes], dict[int, int]]:
    """As `page`, one text per op."""
    spans = [span for span in spans if span.after < span.upto]
    if not spans:
        return [], {}
    rows = await pg.fetch(BODIES, scope, *_columns(spans, limit))
    return [row["body"] for row in rows], {row["device"]: row["seq"] for row in rows}


def _columns(spans: Sequence[Span], limit: int) -> tuple[list[int], list[int], list[int], int, int, int]:
    each = max(min(EACH, limit), limit // len(spans))
    budget = max(PAGE_BYTES // len(spans), LEAST_BYTES)
    return [s.device for s in spans], [s.after for s in spans], [s.upto for s in spans], each, budget, limit
