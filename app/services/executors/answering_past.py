"""The executor's questions about a past frontier (server.md §6)."""

import asyncio
from collections.abc import Mapping
from typing import Any

from app.problems import Problem
from app.services.access import Reach
from app.services.executors.answering import Run, open_intents
from app.services.reading.past import Past, locate, readable, stamps_of, stored_intents
from app.sql import ops, seen
from app.sql.histories import Stamp
from app.sql.transactions import Driver
from foldpoint.fold import fold_onto
from foldpoint.op import Op
from foldpoint.run_seen import sightings, status_of
from foldpoint.seal import Keyring
from foldpoint.state import Record, SyncState
from foldpoint.surfaces import intent

#: Below every stamp.
NOTHING: Stamp = (-1, 0)


async def committed_at(
    pg: Driver, reach: Reach, run: Run, frontier: Mapping[str, int], keyring: Keyring | None
) -> dict[str, Any]:
    """A run's answer as it was at a frontier. Raises frontier_collected, and sealed_scope.

    That it committed is told from a checkpoint and the ops after it; any other status needs every op. `intent` is the
    newest one of that past that is still known: where ops were dropped, an older one than it was, or none, if a later
    one at the same epoch took its place in run_seen.
    """
    scope, (agent, run_id) = reach.existing, run
    past = await _all_ops(pg, scope, frontier) or await locate(pg, scope, frontier)
    start = SyncState() if past.start is None else await stored_intents(pg, scope, past.start)
    if keyring is None:
        texts = await ops.naming(pg, scope, past.spans, intent.SURFACE, "id", run_id)
    else:
        texts = await ops.of_surface(pg, scope, past.spans, intent.SURFACE)
    own = [op for op in await asyncio.to_thread(readable, texts, keyring) if _is_of(op, run)]
    record = fold_onto(start, own).committed_run(agent, run_id)
    if record is None:
        open_intents(reach.closed_intents)
        if past.start is not None:
            raise Problem("frontier_collected", "only that a run committed is still known of this frontier")
    found = sightings(own)
    known = [] if past.start is None else await _seen_by(pg, scope, run, past)
    last = max([*found.values(), *known], default=None)
    return {
        "status": status_of(record, found),
        "record": record and record.to_json(),
        "intent": last and last.to_json(),
    }


async def _seen_by(pg: Driver, scope: int, run: Run, past: Past) -> list[Record]:
    """What run_seen keeps of a run at or below a frontier: a chain's stamps rise with its seqs."""
    (kept,) = await seen.of_runs(pg, scope, [run])
    stamps = await stamps_of(pg, scope, past)
    last = {device: stamps.get(no, NOTHING) for device, no in past.numbers.items()}
    return [record for record in kept.values() if record.hlc[:2] <= last.get(record.hlc.device_id, NOTHING)]


async def _all_ops(pg: Driver, scope: int, frontier: Mapping[str, int]) -> Past | None:
    """The way that begins at nothing; None if some op of it was dropped."""
    try:
        return await locate(pg, scope, frontier, starts=())
    except Problem:
        return None


def _is_of(op: Op, run: Run) -> bool:
    agent, run_id = run
    return intent.agent_id(op.payload) == agent and op.fold_key == "id:" + run_id
