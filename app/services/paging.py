"""Pages of `/ops`: by a cursor that is a frontier, or of one device's range."""

from collections.abc import Mapping
from typing import NamedTuple

from app.problems import Problem
from app.services.cursors import Cursor, read_cursor
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
    """The next ops after a cursor. Raises what `read_cursor` raises, and cursor_gone below a floor."""
    read = read_cursor(cursor, epoch, scope)
    chains = await devices.chains(pg, scope)
    await _check(pg, chains, read)
    spans = []
    for no, chain in chains.items():
        assert chain.head is not None
        spans.append(Span(no, read.reached.get(no, -1), chain.head.seq))
    found = await ops.page(pg, scope, spans, limit, separator)
    reached = {**read.reached, **found.reached}
    caught_up = all(span.after >= span.upto for span in advance(spans, found.reached))
    return OpsPage(found.body, Cursor(epoch, scope, reached).text(), caught_up)


async def _check(pg: Driver, chains: Mapping[int, Chain], cursor: Cursor) -> None:
    """Raises cursor_gone for a cursor that no page gave, or that needs ops which are dropped."""
    for no, seq in cursor.reached.items():
        if no not in chains or seq >= chains[no].next_seq:
            raise Problem("cursor_gone", "the cursor is ahead of what this server holds; start again without one")
    behind = any(cursor.reached.get(no, -1) + 1 < chain.dropped_below for no, chain in chains.items())
    if behind:
        base = await checkpoints.base(pg, cursor.scope)
        assert base is not None
        numbers = {chain.device_id: no for no, chain in chains.items()}
        covered = await checkpoints.frontier(pg, base.id)
        reached = {
            numbers[device]: max(entry.seq, cursor.reached.get(numbers[device], -1))
            for device, entry in covered.items()
        }
        facts = {
            "checkpoint": base.hash,
            "cursor": Cursor(cursor.epoch, cursor.scope, {**cursor.reached, **reached}).text(),
        }
        raise Problem("cursor_gone", "ops after the cursor were dropped; they are in the checkpoint", facts)


async def range_page(
    pg: Driver, scope: int, epoch: str, part: Range, cursor: str | None, limit: int, separator: bytes
) -> OpsPage:
    """A page of one device's ops. Raises not_found for an unknown device, cursor_gone below its floor."""
    read = read_cursor(cursor, epoch, scope)
    for no, chain in (await devices.chains(pg, scope)).items():
        if chain.device_id != part.device or chain.head is None:
            continue
        after = max(part.from_seq - 1, read.reached.get(no, -1))
        if after + 1 < chain.dropped_below:
            detail = f"ops of {part.device} below seq {chain.dropped_below} were dropped"
            raise Problem("cursor_gone", detail, {"device_id": part.device, "dropped_below": chain.dropped_below})
        upto = chain.head.seq if part.to_seq is None else min(part.to_seq, chain.head.seq)
        found = await ops.page(pg, scope, [Span(no, after, upto)], limit, separator)
        reached = found.reached.get(no, after)
        done = Cursor(epoch, scope, {no: reached} if reached >= 0 else {})
        return OpsPage(found.body, done.text(), reached >= upto)
    raise Problem("not_found", f"no op of a device {part.device!r} is held")
