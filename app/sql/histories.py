"""Records in (hlc, op_id) order: of one stream, one registry kind or a whole surface; all of them, or a page."""

from dataclasses import dataclass, field
from typing import Any

from app.sql.keys import raw_op_id
from app.sql.rows import record_of
from app.sql.transactions import Driver
from foldpoint.hlc import Hlc
from foldpoint.state import Record
from foldpoint.surfaces import Surface

#: A place between records.
Place = tuple[Hlc, str]

#: Where the payload is, in each table that holds records.
PAYLOADS = {
    "record": "o.payload",
    "op": "substr(o.body, o.payload_at + 1, length(o.body) - o.payload_at - 1)",
}
STAMP = "(o.wall_ms, o.counter)"


@dataclass(slots=True)
class _Query:
    """A page over the tables of a surface; values become numbered parameters.

    Each table's share is cut by stamp alone, with all that tie, before a payload is read or a device joined: so it
    is a walk along the index whatever the statistics say. The ids of devices then break the ties.
    """

    order: str
    values: list[Any] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)
    most: str = ""
    place: list[str] = field(default_factory=list)
    end: list[str] = field(default_factory=list)

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

    def _parts(self, place: Place) -> list[str]:
        hlc, op_id = place
        return [self.value(part) for part in (hlc.wall_ms, hlc.counter, hlc.device_id.encode(), raw_op_id(op_id))]

    def text(self, tables: list[str]) -> str:
        order, sign = self.order, ">" if self.order == "asc" else "<"
        shares = " union all ".join(share for table in tables for share in self._shares(table, sign))
        record = "(wall_ms, counter, device_id, op_id)"
        beyond = [f"{record} {sign} ({', '.join(self.place)})"] if self.place else []
        beyond += [f"{record} < ({', '.join(self.end)})"] if self.end else []
        where = "where " + " and ".join(beyond) if beyond else ""
        columns = f"wall_ms {order}, counter {order}, device_id {order}, op_id {order}"
        limit = f"limit {self.most}" if self.most else ""
        joined = f"select s.*, d.id as device_id from ({shares}) s join device d on d.no = s.device"
        return f"select * from ({joined}) page {where} order by {columns} {limit}"

    def _shares(self, table: str, sign: str) -> list[str]:
        """What a table may give: records beyond the stamp of the place, and those that tie with it."""
        where = " and ".join(self.conditions)
        select = f"select o.wall_ms, o.counter, o.device, o.op_id, {PAYLOADS[table]} as payload from {table} o"
        cut = f" fetch first ({self.most}) rows with ties" if self.most else ""
        walk = f"order by o.wall_ms {self.order}, o.counter {self.order}{cut}"
        if not self.place:
            return [f"({select} where {where} {walk})"]
        stamp = f"({self.place[0]}, {self.place[1]})"
        return [
            f"({select} where {where} and {STAMP} {sign} {stamp} {walk})",
            f"({select} where {where} and {STAMP} = {stamp})",
        ]


async def page(
    pg: Driver,
    scope: int,
    surface: Surface,
    *,
    stream: bytes | None = None,
    kind: bytes | None = None,
    before: Place | None = None,
    after: Place | None = None,
    limit: int | None = None,
    tail: bool = False,
) -> list[Record]:
    """Records in ascending order: the first `limit` after a place, or else the last ones before one.

    Without a place these are the first, or with `tail` the last of all.
    """
    backwards = after is None and (tail or before is not None)
    query = _Query("desc" if backwards else "asc")
    query.only("scope", scope)
    query.only("surface", surface.number)
    if stream is not None:
        query.only("stream", stream)
    elif surface.event_stream:
        query.conditions.append("o.stream is not null")
    if kind is not None:
        query.only("kind", kind)
    query.bound(after or before, before if after is not None else None, limit)
    rows = await pg.fetch(query.text(["op", "record"] if surface.event_stream else ["record"]), *query.values)
    records = [record_of(row) for row in rows]
    return records[::-1] if backwards else records
