"""Lists of records and conversations, paged by keyset."""

from contextlib import suppress
from typing import Any

from app.services.reading.cursors import Cursors, invalid_cursor, key
from app.sql import histories, snapshots, streams
from app.sql.entries import StreamKey
from app.sql.histories import Place
from app.sql.keys import slot_key, stream_key
from app.sql.snapshots import Stream
from app.sql.transactions import Driver
from foldpoint.admission import I64_MAX
from foldpoint.canonical import Unreadable
from foldpoint.op import read_hlc
from foldpoint.projections import Projection
from foldpoint.state import Record
from foldpoint.surfaces import Surface, conversation

MAX_RECORDS = 5_000
MAX_CONVERSATIONS = 1_000
#: A page of large records ends once it holds about so much.
PAGE_BYTES = 8 * 1024 * 1024


def place_json(record: Record) -> list[Any]:
    """The place of a record, as cursors carry it."""
    return [record.hlc.to_json(), record.op_id]


def place(value: Any) -> Place:
    """A place between records. Raises invalid_cursor."""
    match value:
        case [dict(hlc), str(op_id)] if _is_op_id(op_id):
            with suppress(Unreadable):
                if (stamp := read_hlc(hlc)).wall_ms <= I64_MAX:
                    return stamp, op_id
    raise invalid_cursor()


def _is_op_id(text: str) -> bool:
    return len(text) == 35 and text.startswith("op-") and all(c in "0123456789abcdef" for c in text[3:])


async def records(
    pg: Driver, cursors: Cursors, surface: Surface, kind: str | None, cursor: str | None, limit: int
) -> dict[str, Any]:
    """A page of a surface's or a registry's records, fewer if they are large; the cursor is null at the end."""
    of_kind = None if kind is None else slot_key(kind)
    after = cursors.read(cursor, place)
    page = await histories.bounded(pg, cursors.scope, surface, PAGE_BYTES, kind=of_kind, after=after, limit=limit)
    more = cursors.text(place_json(page.records[-1])) if page.more else None
    return {"records": [record.to_json() for record in page.records], "cursor": more}


async def named_streams(
    pg: Driver, cursors: Cursors, projection: Projection, cursor: str | None, limit: int
) -> tuple[list[Stream], str | None]:
    """A page of a projection's streams by name in byte order, and the cursor to what follows."""
    after = None
    if (named := cursors.read(cursor, key)) is not None:
        after = await snapshots.name_of(pg, cursors.scope, StreamKey(projection.number, named))
        if after is None:
            raise invalid_cursor()
    found = await snapshots.listed(pg, cursors.scope, projection.number, after, limit + 1)
    page = found[:limit]
    return page, cursors.text(stream_key(page[-1].name).hex()) if len(found) > limit else None


async def conversations(pg: Driver, cursors: Cursors, cursor: str | None, limit: int) -> dict[str, Any]:
    """A page of conversations by id in byte order; no turn is read.

    A cursor names the last one by its key: the id itself may be too long for a URL.
    """
    surface, after = conversation.SURFACE.number, None
    if (named := cursors.read(cursor, key)) is not None:
        after = await streams.name_of(pg, cursors.scope, surface, named)
        if after is None:
            raise invalid_cursor()
    found = await streams.listed(pg, cursors.scope, surface, after, limit + 1)
    page = found[:limit]
    return {
        "conversations": [
            {
                "conversation_id": entry.name,
                "turns": entry.records,
                "first": entry.first.to_json(),
                "last": entry.last.to_json(),
            }
            for entry in page
        ],
        "cursor": cursors.text(stream_key(page[-1].name).hex()) if len(found) > limit else None,
    }
