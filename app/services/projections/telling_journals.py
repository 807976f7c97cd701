"""Sessions as they are listed, read and written out (journal.md)."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

import orjson

from app.services.pushing.arrivals import off_loop
from app.services.reading.cursors import Cursors
from app.services.reading.listing import named_streams
from app.services.reading.spool import Spool
from app.sql import snapshots
from app.sql.entries import StreamKey
from app.sql.keys import stream_key
from app.sql.snapshots import Stream
from app.sql.transactions import Driver
from foldpoint.journal.files import export_records, export_state
from foldpoint.journal.recovery import recover
from foldpoint.journal.state import JournalState
from foldpoint.projections import JOURNAL

MAX_SESSIONS = 1_000
#: Lines of a state that are made at once.
LINES = 2_000
#: About so many bytes a state has for each record, at least.
EACH = 200


def _entry(found: Stream) -> dict[str, Any]:
    last, _ = found.last
    return {"session": found.name, "handle": found.label, "entries": found.entries, "last": last.to_json()}


async def sessions(pg: Driver, cursors: Cursors, cursor: str | None, limit: int) -> dict[str, Any]:
    """A page of sessions by key in byte order; no entry is read."""
    page, more = await named_streams(pg, cursors, JOURNAL, cursor, limit)
    return {"journals": [_entry(found) for found in page], "cursor": more}


async def of_handle(pg: Driver, scope: int, handle: str, limit: int) -> dict[str, Any]:
    """The session of a handle: the one renamed last. The others that have it, so many of them, are alternatives."""
    found = await snapshots.labelled(pg, scope, JOURNAL.number, stream_key(handle), handle, limit + 2)
    first = _entry(found[0]) if found else None
    others = [_entry(other) for other in found[1 : limit + 1]]
    return {"journal": first, "alternatives": others, "more": len(found) > limit + 1}


async def told(session: str, state: JournalState) -> bytes:
    """A session's state, as JSON."""

    def text() -> bytes:
        return orjson.dumps({"session": session, **state.to_json(), "seen": state.view.heads})

    return await off_loop(_size(state), text)


async def told_recovery(state: JournalState, transcript_messages: int, author: str | None) -> bytes:
    """What reopening a session adds to a transcript of so many messages, as JSON."""

    def text() -> bytes:
        whole = state.to_json()
        names = ("steer_queue", "follow_up_queue", "plan", "undo_stack")
        kept = {name: whole[name] for name in names}
        recovery = recover(state, transcript_messages, author).to_json()
        return orjson.dumps({**recovery, **kept, "seen": state.view.heads})

    return await off_loop(_size(state), text)


def _size(state: JournalState) -> int:
    return EACH * (state.records + state.skipped)


async def written_records(pg: Driver, scope: int, session: str) -> Spool:
    """The lines of a session's records as they are."""
    spool = Spool()
    async for page in snapshots.above(pg, scope, StreamKey.named(JOURNAL, session), None):
        size = sum(len(record.payload) for record in page)
        spool.write(await off_loop(size, lambda records: b"".join(export_records(records)), page))
    return spool


async def written_state(state: JournalState) -> Spool:
    """Lines that fold to a state."""
    spool, lines = Spool(), iter(export_state(state))
    while piece := await off_loop(_size(state), _joined, islice(lines, LINES)):
        spool.write(piece)
    return spool


def _joined(lines: Iterable[bytes]) -> bytes:
    return b"".join(lines)
