"""Which stored checkpoint is the latest, and which are no longer kept (server.md §5)."""

from sqlalchemy.ext.asyncio import AsyncEngine

from app.sql import checkpoints, scopes
from app.sql.checkpoints import Stored
from app.sql.transactions import Driver, exclusive
from foldpoint.relay import is_latest


async def make_latest(pg: Driver, scope: int, checkpoint: int) -> None:
    """Move the latest pointer if the kept checkpoint dominates it (car-sync.md §9.8, §11.6)."""
    await scopes.hold(pg, scope)
    latest = await checkpoints.latest(pg, scope)
    candidate = await checkpoints.seqs(pg, scope, checkpoint)
    if latest is None or is_latest(candidate, await checkpoints.seqs(pg, scope, latest.id)):
        await checkpoints.point(pg, scope, latest=checkpoint)


async def keep(pg: Driver, scope: int, checkpoint: int) -> Stored:
    """Take in one that this transaction stored, which works alone on the scope, and let go of what nothing needs."""
    await make_latest(pg, scope, checkpoint)
    await checkpoints.prune(pg, scope)
    stored = await checkpoints.by_id(pg, scope, checkpoint)
    assert stored is not None
    return stored


async def sweep(engine: AsyncEngine, scope: int) -> None:
    """Delete the texts of those that were let go."""
    async with exclusive(engine) as pg:
        await checkpoints.sweep(pg, scope)
