"""One step of retention: base rows that go or become stubs, and what the list of conversations says of it."""

from collections import Counter
from collections.abc import Sequence

from app.sql import histories, scopes, trims
from app.sql.histories import Place
from app.sql.keys import stream_key
from app.sql.transactions import Driver
from app.sql.trims import BaseRow
from foldpoint.retention import stub_of
from foldpoint.state import Record
from foldpoint.surfaces import Surface, conversation

#: Records looked at together in search of the first or last turn.
ENDS = 50


async def trim_step(pg: Driver, scope: int, trim: int, surface: Surface, step: Sequence[tuple[bytes, bytes]]) -> None:
    """Trim these (slot, raw op id) of a log, as far as they are still there, under the scope's lock."""
    await scopes.hold(pg, scope)
    rows = await trims.still(pg, scope, surface, step)
    stubs = {row.slot: stub for row in rows if (stub := stub_of(row.key, row.record))}
    await trims.drop(pg, scope, surface, [row.slot for row in rows if row.slot not in stubs])
    await trims.put_stubs(pg, scope, surface, [(slot, stub.payload) for slot, stub in stubs.items()])
    await trims.count(pg, scope, trim, len(rows) - len(stubs), len(stubs))
    if surface is conversation.SURFACE:
        await _shrink(pg, scope, rows)


async def _shrink(pg: Driver, scope: int, rows: list[BaseRow]) -> None:
    """Tell the list of conversations that these turns are gone."""
    surface = conversation.SURFACE
    gone = Counter(conversation.conversation_id(row.record.value()) for row in rows)
    for name, turns in gone.items():
        first = await _end(pg, scope, name, tail=False)
        if first is None:
            await trims.forget(pg, scope, surface, name)
        else:
            last = await _end(pg, scope, name, tail=True)
            assert last is not None
            await trims.shrink(pg, scope, surface, name, turns, (first, last))


async def _end(pg: Driver, scope: int, name: str, *, tail: bool) -> Record | None:
    """The first or the last turn of a conversation that is no tombstone."""
    place: Place | None = None
    while True:
        page = await histories.page(
            pg, scope, conversation.SURFACE, stream=stream_key(name), limit=ENDS, tail=tail,
            before=place if tail else None, after=None if tail else place,
        )  # fmt: skip
        for record in reversed(page) if tail else page:
            if not conversation.is_tombstone(record.value()):
                return record
        if not page:
            return None
        edge = page[0] if tail else page[-1]
        place = edge.hlc, edge.op_id
