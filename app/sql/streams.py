"""Conversations as a listing needs them: how many turns, from which stamp to which."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from app.sql.keys import stream_key
from app.sql.transactions import Driver
from app.sql.writes import Writes
from foldpoint.hlc import Hlc


@dataclass(slots=True)
class Growth:
    """What a batch adds to one stream."""

    first: Hlc
    last: Hlc
    records: int


GROW = """
insert into stream as s (scope, surface, key, name, records, first_wall_ms, first_counter, first_device,
                         last_wall_ms, last_counter, last_device)
select * from unnest($1::int[], $2::smallint[], $3::bytea[], $4::bytea[], $5::bigint[], $6::bigint[], $7::bigint[],
                     $8::bytea[], $9::bigint[], $10::bigint[], $11::bytea[])
on conflict (scope, surface, key) do update set
    records = s.records + excluded.records,
    (first_wall_ms, first_counter, first_device) = (
        select * from (values (s.first_wall_ms, s.first_counter, s.first_device),
                              (excluded.first_wall_ms, excluded.first_counter, excluded.first_device)) v(w, c, d)
        order by w, c, d limit 1),
    (last_wall_ms, last_counter, last_device) = (
        select * from (values (s.last_wall_ms, s.last_counter, s.last_device),
                              (excluded.last_wall_ms, excluded.last_counter, excluded.last_device)) v(w, c, d)
        order by w desc, c desc, d desc limit 1)
"""


def grow(writes: Writes, scope: int, surface: int, growth: dict[str, Growth]) -> None:
    """Add a batch to the streams it belongs to."""
    writes.add(GROW, [(scope, surface, *_row(name, added)) for name, added in growth.items()])


def _row(name: str, growth: Growth) -> tuple[Any, ...]:
    return stream_key(name), name.encode(), growth.records, *_stamp(growth.first), *_stamp(growth.last)


def _stamp(hlc: Hlc) -> tuple[int, int, bytes]:
    return hlc.wall_ms, hlc.counter, hlc.device_id.encode()


def growth_of(stamps: Iterable[tuple[str, Hlc]]) -> dict[str, Growth]:
    """What these records, each with its stream's name, add to which stream."""
    grouped: dict[str, list[Hlc]] = defaultdict(list)
    for name, hlc in stamps:
        grouped[name].append(hlc)
    return {name: Growth(min(own), max(own), len(own)) for name, own in grouped.items()}


LIST = """
select name, records, first_wall_ms, first_counter, first_device, last_wall_ms, last_counter, last_device
from stream
where scope = $1 and surface = $2 and records > 0
  and ($3::bytea is null or (substr(name, 1, 224), name) > (substr($3, 1, 224), $3))
order by substr(name, 1, 224), name limit $4::bigint::bigint
"""


class Stream(NamedTuple):
    """One stream: how many records it has, from which stamp to which."""

    name: str
    records: int
    first: Hlc
    last: Hlc


async def name_of(pg: Driver, scope: int, surface: int, key: bytes) -> bytes | None:
    """The name of the stream with this key."""
    named = "select name from stream where scope = $1 and surface = $2 and key = $3"
    name: bytes | None = await pg.fetchval(named, scope, surface, key)
    return name


async def every(pg: Driver, scope: int, surface: int) -> list[Stream]:
    """Every stream of a surface that has records, by name."""
    return await listed(pg, scope, surface, None, None)


async def listed(pg: Driver, scope: int, surface: int, after: bytes | None, limit: int | None) -> list[Stream]:
    """Streams by name in byte order, those after a name; nothing else of them is read."""
    rows = await pg.fetch(LIST, scope, surface, after, limit)
    return [Stream(row["name"].decode(), row["records"], _hlc(row, "first"), _hlc(row, "last")) for row in rows]


def _hlc(row: Any, end: str) -> Hlc:
    return Hlc(row[f"{end}_wall_ms"], row[f"{end}_counter"], row[f"{end}_device"].decode())
