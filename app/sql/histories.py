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


@dataclass(slots=True)
class _Query:
    """A page over the tables of a surface; values become numbered parameters."""

    values: list[Any] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)

    def value(self, value: Any) -> str:
        self.values.append(value)
        return f"${len(self.values)}"

    def beyond(self, place: Place, sign: str) -> None:
        """Only records beyond a place: the index finds them by stamp, and ties break by id."""
        hlc, op_id = place
        wall_ms, counter = self.value(hlc.wall_ms), self.value(hlc.counter)
        device, op = self.value(hlc.device_id.encode()), self.value(raw_op_id(op_id))
        self.conditions.append(f"(o.wall_ms, o.counter) {sign}= ({wall_ms}, {counter})")
        self.conditions.append(f"(o.wall_ms, o.counter, d.id, o.op_id) {sign} ({wall_ms}, {counter}, {device}, {op})")

    def text(self, tables: list[str], limit: int | None, order: str) -> str:
        most = self.value(limit) + "::bigint"
        where = " and ".join(self.conditions)
        shares = [
            f"(select o.wall_ms, o.counter, d.id as device_id, o.op_id, {PAYLOADS[table]} as payload"
            f" from {table} o join device d on d.no = o.device where {where}"
            f" order by o.wall_ms {order}, o.counter {order}, d.id {order}, o.op_id {order} limit {most})"
            for table in tables
        ]
        together = f"select * from ({' union all '.join(shares)}) page"
        return f"{together} order by wall_ms {order}, counter {order}, device_id {order}, op_id {order} limit {most}"


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
    query = _Query()
    query.conditions += [f"o.scope = {query.value(scope)}", f"o.surface = {query.value(surface.number)}"]
    if stream is not None:
        query.conditions.append(f"o.stream = {query.value(stream)}")
    elif surface.event_stream:
        query.conditions.append("o.stream is not null")
    if kind is not None:
        query.conditions.append(f"o.kind = {query.value(kind)}")
    if after is not None:
        query.beyond(after, ">")
    if before is not None:
        query.beyond(before, "<")
    backwards = after is None and (tail or before is not None)
    tables = ["op", "record"] if surface.event_stream else ["record"]
    rows = await pg.fetch(query.text(tables, limit, "desc" if backwards else "asc"), *query.values)
    records = [record_of(row) for row in rows]
    return records[::-1] if backwards else records
