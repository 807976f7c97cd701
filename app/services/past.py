"""The state at a past frontier, from the nearest exact checkpoint and the ops after it (server.md §5).

A checkpoint C answers a frontier F exactly iff C is exact, C ≤ F, and for every device with F above C nothing
above C was dropped. The empty checkpoint is one of them.
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import NamedTuple

from app.problems import Problem
from app.services.reading_ops import PAGE, advance
from app.sql import checkpoints, devices, ops, scope_tags
from app.sql.ops import Span
from app.sql.transactions import Driver
from foldpoint.canonical import read_json
from foldpoint.checkpoint import Checkpoint, make_checkpoint, read_checkpoint
from foldpoint.envelope import is_envelope
from foldpoint.fold import fold_onto
from foldpoint.frontier import Covered, dominates
from foldpoint.op import Op, read_op
from foldpoint.relay import Chain
from foldpoint.state import SyncState

#: Pages folded at once; each fold copies the maps it adds to.
FOLD_OPS = 20_000


class Past(NamedTuple):
    """How to compute the state at a frontier: the checkpoint to begin at (None: nothing), and the ops to add."""

    start: int | None
    spans: list[Span]
    #: Device id to device number.
    numbers: dict[str, int]


async def locate(pg: Driver, scope: int, frontier: Mapping[str, int], starts: Collection[int] | None = None) -> Past:
    """The nearest way to a frontier. Raises frontier_collected if ops that it needs are gone.

    `starts` are the checkpoints that may be begun at, beside nothing at all; None stands for every exact one.
    """
    chains = await devices.chains(pg, scope)
    numbers = {chain.device_id: no for no, chain in chains.items() if chain.device_id is not None}
    wanted = _wanted(chains, frontier)
    frontiers = await checkpoints.exact_frontiers(pg, scope)
    able: dict[int | None, list[Span]] = {}
    for start, covered in [(None, {}), *frontiers.items()]:
        if start is not None and starts is not None and start not in starts:
            continue
        spans = [Span(no, covered.get(no, -1), seq) for no, seq in wanted.items() if seq > covered.get(no, -1)]
        if dominates(wanted, covered) and all(chains[s.device].dropped_below <= s.after + 1 for s in spans):
            able[start] = spans
    if not able:
        facts = {"frontiers": [_by_id(chains, frontier) for frontier in frontiers.values()]}
        raise Problem("frontier_collected", "ops that this frontier needs were dropped", facts)
    start = min(able, key=lambda start: sum(span.upto - span.after for span in able[start]))
    return Past(start, able[start], numbers)


async def state_at(pg: Driver, scope: int, past: Past) -> SyncState:
    """Fold the way that `locate` found."""
    state = SyncState() if past.start is None else (await read_stored(pg, past.start)).state
    spans, waiting = past.spans, list[Op]()
    while spans:
        texts, reached = await ops.bodies(pg, scope, spans, PAGE)
        if not texts:
            raise Problem("frontier_collected", "ops that this frontier needs are not there")
        waiting += await asyncio.to_thread(_readable, texts)
        spans = [span for span in advance(spans, reached) if span.after < span.upto]
        if waiting and (len(waiting) >= FOLD_OPS or not spans):
            state = await asyncio.to_thread(fold_onto, state, waiting)
            waiting = []
    return state


def _readable(texts: list[bytes]) -> list[Op]:
    """The ops that are folded: sealed ones are not."""
    return [op for op in map(read_op, texts) if not is_envelope(op.payload)]


async def read_stored(pg: Driver, checkpoint: int) -> Checkpoint:
    """A stored checkpoint out of its text."""
    size = await checkpoints.size_of(pg, checkpoint)
    text = b"".join([piece async for piece in checkpoints.text(pg, checkpoint, size)])
    return await asyncio.to_thread(lambda: read_checkpoint(read_json(text)))


async def checkpoint_at(
    pg: Driver, scope: int, frontier: Mapping[str, int], starts: Collection[int] | None = None
) -> Checkpoint:
    """Our own checkpoint at a frontier, from one of these starts. Raises frontier_collected.

    A device that the frontier names and that has no such op is left out: the hashes will tell.
    """
    past = await locate(pg, scope, frontier, starts)
    start = {} if past.start is None else await checkpoints.frontier(pg, past.start)
    covered: dict[str, Covered] = {}
    for device, seq in frontier.items():
        if device in start and start[device].seq == seq:
            covered[device] = start[device]
        elif device in past.numbers and (at := await ops.covered_at(pg, scope, past.numbers[device], device, seq)):
            covered[device] = at
    numbered = {past.numbers[device]: entry.seq for device, entry in covered.items()}
    tags = await scope_tags.covered(pg, scope, numbered)
    state = await state_at(pg, scope, past)
    return await asyncio.to_thread(make_checkpoint, covered, tags, state)


def _by_id(chains: Mapping[int, Chain], frontier: Mapping[int, int]) -> dict[str | None, int]:
    return {chains[no].device_id: seq for no, seq in frontier.items()}


def _wanted(chains: Mapping[int, Chain], frontier: Mapping[str, int]) -> dict[int, int]:
    """The frontier by device number, no further than the heads; unknown devices add nothing."""
    wanted = {}
    for no, chain in chains.items():
        if chain.device_id is not None and chain.device_id in frontier and chain.head is not None:
            wanted[no] = min(frontier[chain.device_id], chain.head.seq)
    return wanted
