"""Lists of records and conversations, paged by keyset."""

from contextlib import suppress
from typing import Any

from app.problems import Problem
from app.services.cursors import decode, encode, key_cursor, read_key
from app.sql import histories, streams
from app.sql.histories import Place
from app.sql.keys import slot_key, stream_key
from app.sql.transactions import Driver
from foldpoint.admission import I64_MAX
from foldpoint.canonical import Unreadable
from foldpoint.op import read_hlc
from foldpoint.state import Record
from foldpoint.surfaces import Surface, conversation

MAX_RECORDS = 5_000
MAX_CONVERSATIONS = 1_000


def place_cursor(record: Record) -> str:
    """The place of a record, opaque."""
    return encode([record.hlc.to_json(), record.op_id])


def read_place(cursor: str | None) -> Place | None:
    """The place in a cursor. Raises invalid_cursor."""
    if cursor is None:
        return None
    match decode(cursor):
        case [dict(hlc), str(op_id)] if _is_op_id(op_id):
            with suppress(Unreadable):
                if (stamp := read_hlc(hlc)).wall_ms <= I64_MAX:
                    return stamp, op_id
    raise Problem("invalid_cursor", "this is no cursor of this list")


def _is_op_id(text: str) -> bool:
    return len(text) == 35 and text.startswith("op-") and all(c in "0123456789abcdef" for c in text[3:])


async def records(
    pg: Driver, scope: int, surface: Surface, kind: str | None, cursor: str | None, limit: int
) -> dict[str, Any]:
    """A page of a surface's or a registry's records; the cursor is null at the end."""
    key = None if kind is None else slot_key(kind)
    found = await histories.page(pg, scope, surface, kind=key, after=read_place(cursor), limit=limit + 1)
    page = found[:limit]
    more = place_cursor(page[-1]) if len(found) > limit else None
    return {"records": [record.to_json() for record in page], "cursor": more}


async def conversations(pg: Driver, scope: int, cursor: str | None, limit: int) -> dict[str, Any]:
    """A page of conversations by id in byte order; no turn is read.

    A cursor names the last one by its key: the id itself may be too long for a URL.
    """
    surface = conversation.SURFACE.number
    after = None if cursor is None else await streams.name_of(pg, scope, surface, read_key(cursor))
    if after is None and cursor is not None:
        raise Problem("invalid_cursor", "this is no cursor of this list")
    found = await streams.listed(pg, scope, surface, after, limit + 1)
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
        "cursor": key_cursor(stream_key(page[-1].name)) if len(found) > limit else None,
    }
