"""Pages of `/ops`: by a cursor that is a frontier, or of one device's range."""

from collections.abc import Mapping
from typing import NamedTuple

from app.problems import Problem
from app.services.cursors import Cursor, CursorGone, read_cursor
from app.services.reading_ops import advance
from app.sql import checkpoints, devices, ops
from app.sql.ops import Span
from app.sql.transactions import Driver
from foldpoint.relay import Chain

MAX_OPS = 5_000


class OpsPage(NamedTuple):
    """Op texts, joined; the cursor after them; whether it had reached every head."""

    body: bytes
    cursor: str
    caught_up: bool


class Range(NamedTuple):
    """The ops of one device with from_seq ≤ seq ≤ to_seq, up to the head where that is None."""

    device: str
    from_seq: int
    to_seq: int | None


async def page(pg: Driver, scope: int, epoch: str, cursor: str | None, limit: int, separator: bytes) -> OpsPage:
    """The next ops after a cursor. Raises what `read_cursor` raises, and cursor_gone below a floor or past a head."""
    chains = await devices.chains(pg, scope)
    try:
        read = read_cursor(cursor, epoch, scope)
        _check(chains, read)
    except CursorGone as error:
        raise await _restart(pg, Cursor(epoch, scope, error.reached), chains, error) from error
    spans = []
    for no, chain in chains.items():
        assert chain.head is not None
        spans.append(Span(no, read.reached.get(no, -1), chain.head.seq))
    found = await ops.page(pg, scope, spans, limit, separator)
    reached = {**read.reached, **found.reached}
    caught_up = all(span.after >= span.upto for span in advance(spans, found.reached))
    return OpsPage(found.body, Cursor(epoch, scope, reached).text(), caught_up)


def _check(chains: Mapping[int, Chain], cursor: Cursor) -> None:
    """Raises CursorGone for a cursor that no page gave, or that needs ops which are dropped."""
    for no, seq in cursor.reached.items():
        if no not in chains or seq >= chains[no].next_seq:
            raise CursorGone("cursor_gone", "the cursor is ahead of what this server holds")
    if any(cursor.reached.get(no, -1) + 1 < chain.dropped_below for no, chain in chains.items()):
        raise CursorGone("cursor_gone", "ops after the cursor were dropped", cursor.reached)


async def _restart(pg: Driver, kept: Cursor, chains: Mapping[int, Chain], gone: CursorGone) -> Problem:
    """Where to go on: after the base checkpoint and what is kept of the old cursor, or at the start."""
    base = await checkpoints.base(pg, kept.scope)
    if base is None or not any(chain.dropped_below for chain in chains.values()):
        return Problem(gone.code, gone.detail, {"checkpoint": None, "cursor": None})
    numbers = {chain.device_id: no for no, chain in chains.items()}
    reached = dict(kept.reached)
    for device, entry in (await checkpoints.frontier(pg, base.id)).items():
        reached[numbers[device]] = max(entry.seq, reached.get(numbers[device], -1))
    cursor = Cursor(kept.epoch, kept.scope, reached).text()
    return Problem(gone.code, gone.detail, {"checkpoint": base.hash, "cursor": cursor})


async def _below_floor(pg: Driver, floor: Cursor, chain: Chain) -> Problem:
    base = await checkpoints.base(pg, floor.scope)
    return Problem(
        "cursor_gone",
        f"ops of {chain.device_id} below seq {chain.dropped_below} were dropped",
        {
            "device_id": chain.device_id,
            "dropped_below": chain.dropped_below,
            "checkpoint": base and base.hash,
            "cursor": floor.text(),
        },
    )


async def range_page(
    pg: Driver, scope: int, epoch: str, part: Range, cursor: str | None, limit: int, separator: bytes
) -> OpsPage:
    """A page of one device's ops. Raises not_found for an unknown device, cursor_gone below its floor."""
    try:
        read = read_cursor(cursor, epoch, scope)
    except CursorGone as error:
        raise error.beside(checkpoint=None, cursor=None) from error
    for no, chain in (await devices.chains(pg, scope)).items():
        if chain.device_id != part.device or chain.head is None:
            continue
        after = max(part.from_seq - 1, read.reached.get(no, -1))
        if after + 1 < chain.dropped_below:
            raise await _below_floor(pg, Cursor(epoch, scope, {no: chain.dropped_below - 1}), chain)
        upto = chain.head.seq if part.to_seq is None else min(part.to_seq, chain.head.seq)
        found = await ops.page(pg, scope, [Span(no, after, upto)], limit, separator)
        reached = found.reached.get(no, after)
        done = Cursor(epoch, scope, {no: reached} if reached >= 0 else {})
        return OpsPage(found.body, done.text(), reached >= upto)
    raise Problem("not_found", f"no op of a device {part.device!r} is held")
