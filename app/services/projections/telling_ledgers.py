"""What is told of run ledgers: lists of runs, one run, and audits of whole ones."""

from typing import Any

import orjson

from app.services.projections.run_ledgers import FOLD, listed
from app.services.projections.streams import Read, Streams, Where
from app.services.projections.whole_ledgers import WholeLedger
from app.services.reading.cursors import Cursors, invalid_cursor
from app.services.reading.listing import named_streams
from app.services.reading.spool import Spool
from app.sql.transactions import Driver
from foldpoint.canonical import U64_MAX
from foldpoint.projections import RUN_LEDGER
from foldpoint.run_ledger.answers import conflicts, told
from foldpoint.run_ledger.lines import export_line
from foldpoint.run_ledger.merge import Merged
from foldpoint.run_ledger.readback import shown

MAX_RUNS = 200
MAX_STATUSES = 10_000


async def runs(
    streams: Streams, pg: Driver, where: Where, cursors: Cursors, cursor: str | None, limit: int
) -> tuple[dict[str, Any], list[Read[Merged]]]:
    """A page of runs by id in byte order, and what was read of them. Nothing of the scope's runs may be closed."""
    page, more = await named_streams(pg, cursors, RUN_LEDGER, cursor, limit)
    reads = [await streams.read(pg, where, FOLD, stream.name, checked=True) for stream in page]
    told_runs = [listed(stream.name, read) for stream, read in zip(page, reads, strict=True)]
    return {"runs": told_runs, "cursor": more}, reads


async def statuses(
    pg: Driver, where: Where, cursors: Cursors, run: str, cursor: str | None, limit: int
) -> dict[str, Any]:
    """What became of all records and seals by seq, about so many; the cursor is null at the end."""
    above = -1 if (place := cursors.read(cursor, _seq)) is None else place
    ledger = await WholeLedger.of(pg, where, run)
    end = ledger.page_end(above, limit)
    found = [told(standing) async for part in ledger.standings(above, end) for standing in part]
    return {"statuses": found, "cursor": None if end is None else cursors.text(end)}


def _seq(place: Any) -> int:
    if type(place) is not int or not 0 <= place <= U64_MAX:
        raise invalid_cursor()
    return place


async def lost(pg: Driver, where: Where, run: str) -> Spool:
    """The entries and seals that are no part of a run's ledger."""
    ledger, values = await WholeLedger.of(pg, where, run), Spool()
    values.head, values.end = b'{"conflicts":[', b"]}"
    async for part in ledger.standings():
        values.add(conflicts(part))
    return values


async def read_back(pg: Driver, where: Where, run: str) -> Spool:
    """A run's ledger as an audit reads it."""
    ledger, values = await WholeLedger.of(pg, where, run), Spool()
    walk = ledger.walk()
    async for part in ledger.judged(walk):
        for winner, _ in part:
            if winner is not None:
                values.add(shown(winner.record.event))
    end = {"final_phase": walk.state.phase, "next_seq": walk.state.next_seq}
    values.head, values.end = b'{"ok":true,"entries":[', b"]," + orjson.dumps(end)[1:]
    return values


async def exported(pg: Driver, where: Where, run: str) -> Spool:
    """A run's ledger as JSON lines."""
    ledger, spool = await WholeLedger.of(pg, where, run), Spool()
    async for part in ledger.judged(ledger.walk()):
        for winner, _ in part:
            if winner is not None:
                spool.write(export_line(winner))
    return spool
