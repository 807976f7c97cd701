"""Stored checkpoints as a list shows them, each with a cursor to go on from it."""

from collections.abc import Sequence
from typing import Any

from app.problems import Problem
from app.services.reading.cursors import Cursors, reached_json
from app.sql import checkpoints
from app.sql.checkpoints import Stored
from app.sql.transactions import Driver


async def entries(pg: Driver, cursors: Cursors, listed: Sequence[Stored]) -> list[dict[str, Any]]:
    """What is told of each: hashes, origin, exactness, size, frontier, the `/ops` cursor after it, and its role."""
    pointers = await checkpoints.pointers(pg, cursors.scope)
    frontiers = await checkpoints.frontiers_of(pg, cursors.scope, [stored.id for stored in listed])
    return [
        {
            "checkpoint_hash": stored.hash,
            "state_hash": stored.state_hash,
            "origin": stored.origin,
            "exact": stored.exact,
            "size": stored.size,
            "created_at": stored.created_at,
            "frontier": dict(frontiers[stored.id].values()),
            "cursor": cursors.text(reached_json({no: seq for no, (_, seq) in frontiers[stored.id].items()})),
            "latest": stored.id == pointers.latest,
            "base": stored.id == pointers.base,
        }
        for stored in listed
    ]


async def gone(pg: Driver, cursors: Cursors) -> Problem:
    """What to say of a checkpoint whose text is no longer kept: begin with the latest, which is named."""
    latest = await checkpoints.latest(pg, cursors.scope)
    cursor = None if latest is None else await cursor_after(pg, cursors, latest)
    facts = {"checkpoint": latest and latest.hash, "cursor": cursor}
    return Problem("cursor_gone", "this checkpoint is no longer kept; begin with the latest", facts)


async def cursor_after(pg: Driver, cursors: Cursors, stored: Stored) -> str:
    """The `/ops` cursor of a reader that has what a checkpoint covers."""
    return cursors.text(reached_json(await checkpoints.seqs(pg, cursors.scope, stored.id)))
