"""Transcripts and resume messages of one conversation, read from its records alone."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from app.services.reading.cursors import Cursors
from app.services.reading.listing import PAGE_BYTES, place_json
from app.services.reading.spool import Spool
from app.sql import histories
from app.sql.histories import Place, Stamp
from app.sql.keys import stream_key
from app.sql.transactions import Driver
from foldpoint.resume import Repairing
from foldpoint.state import Record
from foldpoint.surfaces import conversation
from foldpoint.transcript import turns


class Window(NamedTuple):
    """Which turns: those before or after a place, at most `limit`; without a place the last ones."""

    before: Place | None = None
    after: Place | None = None
    limit: int | None = None
    #: The last stamp of each device, by number, of a past frontier.
    until: Mapping[int, Stamp] | None = None

    def of(self, name: str) -> histories.Window:
        """The window on a conversation."""
        return {
            "stream": stream_key(name),
            "before": self.before,
            "after": self.after,
            "limit": self.limit,
            "tail": self.after is None,
            "until": self.until,
        }


async def transcript(pg: Driver, cursors: Cursors, name: str, window: Window) -> dict[str, Any]:
    """The turns of a window with a limit, fewer if they are large, with cursors to what lies beyond its ends."""
    page = await histories.bounded(pg, cursors.scope, conversation.SURFACE, PAGE_BYTES, **window.of(name))
    forwards, found = window.after is not None, page.records
    return {
        "turns": [turn.to_json() for turn in turns(found)],
        "before": _cursor(cursors, found[0]) if found and (forwards or page.more) else None,
        "after": _cursor(cursors, found[-1]) if found and (window.before or (forwards and page.more)) else None,
    }


async def whole_transcript(pg: Driver, cursors: Cursors, name: str, window: Window) -> Spool:
    """The same of a window without a limit: all of its turns."""
    spool = Spool()
    first = last = None
    async for records in histories.whole(pg, cursors.scope, conversation.SURFACE, **window.of(name)):
        first, last = first or records[0], records[-1]
        spool.add([turn.to_json() for turn in turns(records)])
    ends = {
        "before": _cursor(cursors, first) if first and window.after else None,
        "after": _cursor(cursors, last) if last and window.before else None,
    }
    spool.head, spool.end = b'{"turns":[', b"]," + orjson.dumps(ends)[1:]
    return spool


def _cursor(cursors: Cursors, record: Record) -> str:
    return cursors.text(place_json(record))


async def resume(pg: Driver, scope: int, name: str, window: Window) -> Spool:
    """The messages to go on with, from the turns of a window, and the report of repairs."""
    spool, repairing = Spool(), Repairing()
    async for records in histories.whole(pg, scope, conversation.SURFACE, **window.of(name)):
        spool.add([message for turn in turns(records) if (message := repairing.take(turn))])
    if (message := repairing.end()) is not None:
        spool.add([message])
    spool.head, spool.end = b'{"messages":[', b'],"repairs":%b}' % orjson.dumps(repairing.repairs())
    return spool
