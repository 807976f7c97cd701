"""Ops by frontier: what a device pulls in one answer, and what a reader pages through."""

from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncEngine

from app.problems import BrokenOff, Problem
from app.sql import checkpoints, devices, ops
from app.sql.ops import Page, Span
from app.sql.transactions import Driver, alone
from foldpoint.relay import Chain, truncated

#: Ops of one page of a streamed answer.
PAGE = 1_000


class Overtaken(BrokenOff):
    """GC dropped ops that an answer had begun to send."""


class Pull(NamedTuple):
    """What a pull will send: the ops of these spans, bounded by the heads as they were."""

    spans: list[Span]
    latest_checkpoint: str | None


async def begin_pull(pg: Driver, scope: int, since: Mapping[str, int], *, sealed: bool) -> Pull:
    """Capture the heads. Raises frontier_truncated if the frontier reaches into dropped ops."""
    chains = await devices.chains(pg, scope)
    for chain in chains.values():
        if truncated(chain, since):
            raise _frontier_truncated(chain)
    spans = [span for no, chain in chains.items() if (span := _after(no, chain, since)) is not None]
    return Pull(spans, None if sealed else await checkpoints.latest_hash(pg, scope))


def _after(no: int, chain: Chain, since: Mapping[str, int]) -> Span | None:
    assert chain.device_id is not None
    assert chain.head is not None
    held = since.get(chain.device_id, -1)
    return Span(no, held, chain.head.seq) if held < chain.head.seq else None


def _frontier_truncated(chain: Chain) -> Problem:
    return Problem(
        "frontier_truncated",
        f"ops of {chain.device_id} below seq {chain.dropped_below} were dropped",
        {
            "type": "https://parslee.ai/errors/car-sync/frontier-truncated",
            "device_id": chain.device_id,
            "dropped_below": chain.dropped_below,
        },
    )


async def pages(engine: AsyncEngine, scope: int, spans: list[Span], separator: bytes) -> AsyncIterator[Page]:
    """The ops of these spans in (hlc, op_id) order, page by page, a short statement each. Raises Overtaken."""
    while spans:
        async with alone(engine) as pg:
            page = await ops.page(pg, scope, spans, PAGE, separator)
        if page.ops != sum(page.reached.get(span.device, span.after) - span.after for span in spans) or not page.ops:
            raise Overtaken("GC dropped ops of this answer")
        yield page
        spans = advance(spans, page.reached)


def advance(spans: list[Span], reached: Mapping[int, int]) -> list[Span]:
    """What is left of these spans once each device is read up to there."""
    moved = [span._replace(after=reached.get(span.device, span.after)) for span in spans]
    return [span for span in moved if span.after < span.upto]
