"""Transcripts and resume messages of one conversation, read from its records alone."""

from typing import Any, NamedTuple

from app.services.listing import place_cursor
from app.sql import histories
from app.sql.histories import Place
from app.sql.keys import stream_key
from app.sql.transactions import Driver
from foldpoint import resume as repairing
from foldpoint.state import Record
from foldpoint.surfaces import conversation
from foldpoint.transcript import turns


class Window(NamedTuple):
    """Which turns: those before or after a place, at most `limit`; without a place the last ones."""

    before: Place | None = None
    after: Place | None = None
    limit: int | None = None


async def transcript(pg: Driver, scope: int, name: str, window: Window) -> dict[str, Any]:
    """The turns of a window, with cursors to what lies beyond its ends, null where nothing does."""
    more = None if window.limit is None else window.limit + 1
    found = await _records(pg, scope, name, window._replace(limit=more))
    forwards = window.after is not None
    cut = window.limit is not None and len(found) > window.limit
    page = found if not cut else found[:-1] if forwards else found[1:]
    earlier = forwards or cut
    later = window.before is not None or (forwards and cut)
    return {
        "turns": [turn.to_json() for turn in turns(page)],
        "before": place_cursor(page[0]) if page and earlier else None,
        "after": place_cursor(page[-1]) if page and later else None,
    }


async def resume(pg: Driver, scope: int, name: str, limit: int | None) -> dict[str, Any]:
    """The messages to go on with, from the last `limit` turns, and the report of repairs."""
    found = await _records(pg, scope, name, Window(limit=limit))
    resumed = repairing.resume(turns(found))
    return {"messages": resumed.messages, "repairs": resumed.repairs}


async def _records(pg: Driver, scope: int, name: str, window: Window) -> list[Record]:
    return await histories.page(
        pg,
        scope,
        conversation.SURFACE,
        stream=stream_key(name),
        before=window.before,
        after=window.after,
        limit=window.limit,
        tail=window.after is None,
    )
