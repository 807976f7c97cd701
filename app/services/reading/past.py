"""The state at a past frontier, from the nearest exact checkpoint and the ops after it (server.md §5).

A checkpoint C answers a frontier F exactly iff C is exact, C ≤ F, and for every device with F above C nothing
above C was dropped. The empty checkpoint is one of them.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from typing import NamedTuple

from app.problems import Problem
from app.services.keys.opening import Opened
from app.services.reading.reading_ops import PAGE, advance
from app.sql import checkpoint_texts, checkpoints, devices, ops, scope_tags, trims
from app.sql.histories import Stamp
from app.sql.ops import Span
from app.sql.transactions import Driver
from foldpoint.checkpoint import Checkpoint, make_checkpoint
from foldpoint.checkpoint_leaves import enters, put_leaf
from foldpoint.envelope import is_envelope
from foldpoint.fold import fold_onto
from foldpoint.frontier import Covered, dominates
from foldpoint.op import Op
from foldpoint.op_text import read_op
from foldpoint.relay import Chain
from foldpoint.seal import Keyring
from foldpoint.splitting import Path, Splitter
from foldpoint.state import SyncState

#: Ops folded at once; each fold copies the maps it adds to.
FOLD_OPS = 20_000


class Past(NamedTuple):
    """How to compute the state at a frontier: the checkpoint to begin at (None: nothing), and the ops to add."""

    start: int | None
    spans: list[Span]
    #: The frontier by device number, no further than the heads.
    upto: dict[int, int]
    #: Device id to device number.
    numbers: dict[str, int]


async def locate(pg: Driver, scope: int, frontier: Mapping[str, int], starts: Collection[int] | None = None) -> Past:
    """The nearest way to a frontier. Raises frontier_collected if ops that it needs are gone.

    `starts` are the checkpoints that may be begun at, beside nothing at all; None stands for every exact one.
    """
    chains = await devices.chains(pg, scope)
    numbers = {chain.device_id: no for no, chain in chains.items() if chain.device_id is not None}
    wanted = _wanted(chains, frontier)
    frontiers = await checkpoints.answering(pg, scope)
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
    return Past(start, able[start], wanted, numbers)


async def state_at(pg: Driver, scope: int, past: Past, keyring: Keyring | None = None) -> SyncState:
    """Fold the way that `locate` found; sealed ops as this keyring opens them."""
    state = SyncState() if past.start is None else await stored_state(pg, scope, past.start)
    spans, waiting = past.spans, list[Op]()
    while spans:
        texts, reached = await ops.bodies(pg, scope, spans, PAGE)
        if not texts:
            raise Problem("frontier_collected", "ops that this frontier needs are not there")
        waiting += await asyncio.to_thread(readable, texts, keyring)
        spans = advance(spans, reached)
        if waiting and (len(waiting) >= FOLD_OPS or not spans):
            state = await asyncio.to_thread(fold_onto, state, waiting)
            waiting = []
    return state


def readable(texts: list[bytes], keyring: Keyring | None) -> list[Op]:
    """The ops as they are folded: sealed ones are not without a keyring."""
    if keyring is not None:
        return Opened.of(map(read_op, texts), keyring).ops
    return [op for op in map(read_op, texts) if not is_envelope(op.payload)]


async def stored_state(pg: Driver, scope: int, checkpoint: int) -> SyncState:
    """The state of a stored checkpoint, out of its text."""
    state = SyncState()
    async for leaves in stored_leaves(pg, scope, checkpoint):
        for path, text in leaves:
            put_leaf(state, path, text)
    return state


async def stored_intents(pg: Driver, scope: int, checkpoint: int) -> SyncState:
    """The leased tier alone of a stored checkpoint; its text begins with it, and no more is read."""
    state = SyncState()
    async for leaves in stored_leaves(pg, scope, checkpoint):
        for path, text in leaves:
            if path[:2] > ("state", "intents"):
                return state
            put_leaf(state, path, text)
    return state


async def stored_leaves(pg: Driver, scope: int, checkpoint: int) -> AsyncIterator[list[tuple[Path, str]]]:
    """The leaves of a stored checkpoint as they come out of its text, off the event loop."""
    stored = await checkpoints.by_id(pg, scope, checkpoint)
    assert stored is not None
    splitter = Splitter(enters)
    async for piece in checkpoint_texts.text(pg, stored):
        yield await asyncio.to_thread(list, splitter.feed(piece))
    yield await asyncio.to_thread(list, splitter.finish())


async def stamps_at(pg: Driver, scope: int, frontier: Mapping[str, int]) -> dict[int, Stamp]:
    """The last stamp of each device at a frontier, by device number: what lies above is not in it.

    Raises frontier_collected, and unavailable while records of that past are being trimmed.
    """
    if await trims.unfinished(pg, scope) is not None:
        raise Problem("unavailable", "retention is at work, and records below the floor are going")
    return await stamps_of(pg, scope, await locate(pg, scope, frontier))


async def stamps_of(pg: Driver, scope: int, past: Past) -> dict[int, Stamp]:
    """The same of a past that was located; the stamp of an op that was dropped is the one that the start ends with."""
    start = {} if past.start is None else await checkpoints.frontier(pg, scope, past.start)
    stamps = await ops.stamps(pg, scope, past.upto)
    for device, no in past.numbers.items():
        if no in past.upto and no not in stamps:
            stamps[no] = start[device].hlc[:2]
    return stamps


class Own(NamedTuple):
    """Our own checkpoint; `trims` is how often retention had trimmed the state that it began at."""

    checkpoint: Checkpoint
    trims: int


async def checkpoint_at(
    pg: Driver, scope: int, frontier: Mapping[str, int], starts: Collection[int] | None = None
) -> Own:
    """Our own checkpoint at a frontier, from one of these starts. Raises frontier_collected.

    A device that the frontier names and that has no such op is left out: the hashes will tell.
    """
    past = await locate(pg, scope, frontier, starts)
    begun = None if past.start is None else await checkpoints.by_id(pg, scope, past.start)
    start = {} if begun is None else await checkpoints.frontier(pg, scope, begun.id)
    covered: dict[str, Covered] = {}
    for device, seq in frontier.items():
        if device in start and start[device].seq == seq:
            covered[device] = start[device]
        elif device in past.numbers and (at := await ops.covered_at(pg, scope, past.numbers[device], device, seq)):
            covered[device] = at
    numbered = {past.numbers[device]: entry.seq for device, entry in covered.items()}
    tags = await scope_tags.covered(pg, scope, numbered)
    state = await state_at(pg, scope, past)
    return Own(await asyncio.to_thread(make_checkpoint, covered, tags, state), begun.trims if begun else 0)


def _by_id(chains: Mapping[int, Chain], frontier: Mapping[int, int]) -> dict[str | None, int]:
    return {chains[no].device_id: seq for no, seq in frontier.items()}


def _wanted(chains: Mapping[int, Chain], frontier: Mapping[str, int]) -> dict[int, int]:
    """The frontier by device number, no further than the heads; unknown devices add nothing."""
    wanted = {}
    for no, chain in chains.items():
        if chain.device_id is not None and chain.device_id in frontier and chain.head is not None:
            wanted[no] = min(frontier[chain.device_id], chain.head.seq)
    return wanted
