"""Records in (hlc, op_id) order: of one stream, one registry kind or a whole surface; all of them, or a page."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypedDict, Unpack

from app.sql.keys import raw_op_id
from app.sql.ops import OP_PAYLOAD
from app.sql.pages import event_payload, pages, small
from app.sql.rows import record_of
from app.sql.transactions import Driver
from foldpoint.hlc import Hlc
from foldpoint.state import Record
from foldpoint.surfaces import Surface

#: A place between records.
Place = tuple[Hlc, str]
#: wall_ms and counter.
Stamp = tuple[int, int]

#: Where the payload is, in each table that holds records: from `payload_at` on up to the last byte, or all of it.
BODIES = {"record": "o.payload as body, null::int as payload_at", "op": "o.body, o.payload_at"}
PAYLOAD = f"case when payload_at is null then body else {OP_PAYLOAD} end"
STAMP = "(o.wall_ms, o.counter)"


@dataclass(slots=True)
class _Query:
    """A page over the tables of a surface; values become numbered parameters.

    Each table's share is cut by stamp alone, with all that tie, before a payload is read or a device joined: so it
    is a walk along the index whatever the statistics say. The ids of devices then break the ties.
    """

    order: str
    tables: list[str]
    values: list[Any] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)
    most: str = ""
    place: list[str] = field(default_factory=list)
    end: list[str] = field(default_factory=list)

    def ascending(self, records: list[Record]) -> list[Record]:
        return records if self.order == "asc" else records[::-1]

    def value(self, value: Any) -> str:
        self.values.append(value)
        return f"${len(self.values)}"

    def only(self, column: str, value: Any) -> None:
        self.conditions.append(f"o.{column} = {self.value(value)}")

    def bound(self, place: Place | None, end: Place | None, limit: int | None) -> None:
        """Only records beyond a place, short of an end, and at most so many."""
        self.place = [] if place is None else self._parts(place)
        if end is not None:
            self.end = self._parts(end)
            self.conditions.append(f"{STAMP} <= ({self.end[0]}, {self.end[1]})")
        if limit is not None:
            self.most = self.value(limit) + "::bigint"

    def until(self, stamps: Mapping[int, Stamp]) -> None:
        """Only records up to a stamp of each device; no other device's."""
        if not stamps:
            self.conditions.append("false")
            return
        parts = [self.value(part) for part in (list(stamps), *map(list, zip(*stamps.values(), strict=True)))]
        last = [self.value(part) for part in max(stamps.values())]
        self.conditions.append(f"{STAMP} <= ({last[0]}::bigint, {last[1]}::bigint)")
        self.conditions.append(
            f"exists (select from unnest({parts[0]}::int[], {parts[1]}::bigint[], {parts[2]}::bigint[])"
            f" as until(device, wall_ms, counter)"
            f" where until.device = o.device and {STAMP} <= (until.wall_ms, until.counter))"
        )

    def _parts(self, place: Place) -> list[str]:
        hlc, op_id = place
        return [self.value(part) for part in (hlc.wall_ms, hlc.counter, hlc.device_id.encode(), raw_op_id(op_id))]

    def text(self) -> str:
        """The records whole."""
        return f"select wall_ms, counter, device_id, op_id, {PAYLOAD} as payload from ({self._places()}) p {self._by()}"

    def text_within(self, size: int) -> str:
        """Those that begin within so many bytes, and in `found` how many there are."""
        so_far = f"sum(length(body)) over ({self._by()} rows unbounded preceding) - length(body)"
        counted = f"select p.*, count(*) over () as found, {so_far} as so_far from ({self._places()}) p"
        return (
            f"select wall_ms, counter, device_id, op_id, {PAYLOAD} as payload, found"
            f" from ({counted}) c where so_far < {self.value(size)} {self._by()}"
        )

    def text_of_pages(self) -> str:
        """All in ascending order, large ones without their payload."""
        columns = f"wall_ms, counter, device, device_id, op_id, {small('body', PAYLOAD)}"
        return f"select {columns} from ({self._places()}) p {self._by('asc')}"

    def _by(self, order: str = "") -> str:
        order = order or self.order
        return f"order by wall_ms {order}, counter {order}, device_id {order}, op_id {order}"

    def _places(self) -> str:
        """The records, their payloads still to be taken out of what holds them."""
        sign = ">" if self.order == "asc" else "<"
        shares = " union all ".join(share for table in self.tables for share in self._shares(table, sign))
        record = "(wall_ms, counter, device_id, op_id)"
        beyond = [f"{record} {sign} ({', '.join(self.place)})"] if self.place else []
        beyond += [f"{record} < ({', '.join(self.end)})"] if self.end else []
        where = "where " + " and ".join(beyond) if beyond else ""
        first = f"{self._by()} limit {self.most}" if self.most else ""
        joined = f"select s.*, d.id as device_id from ({shares}) s join device d on d.scope = $1 and d.no = s.device"
        return f"select * from ({joined}) page {where} {first}"

    def _shares(self, table: str, sign: str) -> list[str]:
        """What a table may give: records beyond the stamp of the place, and those that tie with it."""
        where = " and ".join(self.conditions)
        select = f"select o.wall_ms, o.counter, o.device, o.op_id, {BODIES[table]} from {table} o"
        cut = f" fetch first ({self.most}) rows with ties" if self.most else ""
        walk = f"order by o.wall_ms {self.order}, o.counter {self.order}{cut}" if self.most else ""
        if not self.place:
            return [f"({select} where {where} {walk})"]
        stamp = f"({self.place[0]}, {self.place[1]})"
        return [
            f"({select} where {where} and {STAMP} {sign} {stamp} {walk})",
            f"({select} where {where} and {STAMP} = {stamp})",
        ]


class Window(TypedDict, total=False):
    """Which records: the first `limit` after a place, or else the last ones before one.

    Without a place these are the first, or with `tail` the last of all. With `until` only those of these devices,
    by number, each up to its stamp. A stream and a kind are named by their keys.
    """

    stream: bytes | None
    kind: bytes | None
    before: Place | None
    after: Place | None
    limit: int | None
    tail: bool
    until: Mapping[int, Stamp] | None


async def page(pg: Driver, scope: int, surface: Surface, **window: Unpack[Window]) -> list[Record]:
    """Records in ascending order."""
    query = _query(scope, surface, window)
    rows = await pg.fetch(query.text(), *query.values)
    return query.ascending([record_of(row) for row in rows])


class Page(NamedTuple):
    """Records in ascending order, and whether the window has more: beyond the limit, or beyond what a page may hold."""

    records: list[Record]
    more: bool


async def bounded(pg: Driver, scope: int, surface: Surface, size: int, **window: Unpack[Window]) -> Page:
    """As `page`, with a limit, but of records that together have about so many bytes, at least one."""
    limit = window["limit"]
    assert limit is not None
    window["limit"] = limit + 1
    query = _query(scope, surface, window)
    rows = (await pg.fetch(query.text_within(size), *query.values))[:limit]
    more = bool(rows) and rows[0]["found"] > len(rows)
    return Page(query.ascending([record_of(row) for row in rows]), more)


async def whole(pg: Driver, scope: int, surface: Surface, **window: Unpack[Window]) -> AsyncIterator[list[Record]]:
    """As `page`, of an event stream, with few records in memory at a time: step by step, no step empty."""
    query, payload_of = _query(scope, surface, window), event_payload(pg, scope, surface.number)
    async for rows in pages(pg, query.text_of_pages(), *query.values, payload_of=payload_of):
        yield [record_of(row) for row in rows]


def _query(scope: int, surface: Surface, window: Window) -> _Query:
    before, after = window.get("before"), window.get("after")
    backwards = after is None and (window.get("tail", False) or before is not None)
    query = _Query("desc" if backwards else "asc", ["op", "record"] if surface.event_stream else ["record"])
    query.only("scope", scope)
    query.only("surface", surface.number)
    if (stream := window.get("stream")) is not None:
        query.only("stream", stream)
    elif surface.event_stream:
        query.conditions.append("o.stream is not null")
    if (kind := window.get("kind")) is not None:
        query.only("kind", kind)
    if (until := window.get("until")) is not None:
        query.until(until)
    query.bound(after or before, before if after is not None else None, window.get("limit"))
    return query
