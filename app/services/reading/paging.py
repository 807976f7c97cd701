"""Pages of `/ops`: by a cursor that is a frontier, or of one device's range."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from app.problems import Problem
from app.services.reading.cursors import CursorGone, Cursors, reached, reached_json
from app.services.reading.reading_ops import advance
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


async def page(pg: Driver, cursors: Cursors, cursor: str | None, limit: int, separator: bytes) -> OpsPage:
    """The next ops after a cursor. Raises what `Cursors.read` raises, and cursor_gone below a floor or past a head."""
    chains = await devices.chains(pg, cursors.scope)
    try:
        read = cursors.read(cursor, reached) or {}
        _check(chains, read)
    except CursorGone as error:
        raise await _restart(pg, cursors, chains, error) from error
    spans = []
    for no, chain in chains.items():
        assert chain.head is not None
        spans.append(Span(no, read.get(no, -1), chain.head.seq))
    found = await ops.page(pg, cursors.scope, spans, limit, separator)
    after = cursors.text(reached_json({**read, **found.reached}))
    return OpsPage(found.body, after, not advance(spans, found.reached))


def _check(chains: Mapping[int, Chain], read: Mapping[int, int]) -> None:
    """Raises CursorGone for a cursor that no page gave, or that needs ops which are dropped."""
    for no, seq in read.items():
        if no not in chains or seq >= chains[no].next_seq:
            raise CursorGone("cursor_gone", "the cursor is ahead of what this server holds")
    if any(read.get(no, -1) + 1 < chain.dropped_below for no, chain in chains.items()):
        raise CursorGone("cursor_gone", "ops after the cursor were dropped", read)


async def _restart(pg: Driver, cursors: Cursors, chains: Mapping[int, Chain], gone: CursorGone) -> Problem:
    """Where to go on: after the base checkpoint and what is kept of the old cursor, or at the start."""
    base = await checkpoints.base(pg, cursors.scope)
    if base is None or not any(chain.dropped_below for chain in chains.values()):
        return gone
    numbers = {chain.device_id: no for no, chain in chains.items()}
    kept = dict(gone.reached)
    for device, entry in (await checkpoints.frontier(pg, cursors.scope, base.id)).items():
        kept[numbers[device]] = max(entry.seq, kept.get(numbers[device], -1))
    return gone.beside(checkpoint=base.hash, cursor=cursors.text(reached_json(kept)))


async def _below_floor(pg: Driver, cursors: Cursors, no: int, chain: Chain) -> Problem:
    base = await checkpoints.base(pg, cursors.scope)
    return Problem(
        "cursor_gone",
        f"ops of {chain.device_id} below seq {chain.dropped_below} were dropped",
        {
            "device_id": chain.device_id,
            "dropped_below": chain.dropped_below,
            "checkpoint": base and base.hash,
            "cursor": cursors.text(reached_json({no: chain.dropped_below - 1})),
        },
    )


async def range_page(
    pg: Driver, cursors: Cursors, part: Range, cursor: str | None, limit: int, separator: bytes
) -> OpsPage:
    """A page of one device's ops. Raises not_found for an unknown device, cursor_gone below its floor."""
    span = await _span(pg, cursors, part, cursors.read(cursor, reached) or {})
    found = await ops.page(pg, cursors.scope, [span], limit, separator)
    last = found.reached.get(span.device, span.after)
    after = cursors.text(reached_json({span.device: last} if last >= 0 else {}))
    return OpsPage(found.body, after, last >= span.upto)


async def digest(pg: Driver, cursors: Cursors, part: Range) -> dict[str, Any]:
    """How many ops a range holds, and the hex SHA-256 of their ids in seq order, each on a line of its own.

    Raises what `range_page` raises.
    """
    span = await _span(pg, cursors, part, {})
    count, digest_ = 0, sha256()
    async for op_id in ops.ids(pg, cursors.scope, span):
        count += 1
        digest_.update(b"op-%b\n" % op_id.hex().encode())
    last = span.after + count if count else None
    return {
        "device_id": part.device,
        "from_seq": span.after + 1 if count else None,
        "to_seq": last,
        "count": count,
        "digest": digest_.hexdigest(),
    }


async def _span(pg: Driver, cursors: Cursors, part: Range, read: Mapping[int, int]) -> Span:
    """What is left of a range after what was read of it."""
    for no, chain in (await devices.chains(pg, cursors.scope)).items():
        if chain.device_id != part.device or chain.head is None:
            continue
        after = max(part.from_seq - 1, read.get(no, -1))
        if after + 1 < chain.dropped_below:
            raise await _below_floor(pg, cursors, no, chain)
        return Span(no, after, chain.head.seq if part.to_seq is None else min(part.to_seq, chain.head.seq))
    raise Problem("not_found", f"no op of a device {part.device!r} is held")
