"""Which stored checkpoint is the latest, and which are no longer kept (server.md §5)."""

from sqlalchemy.ext.asyncio import AsyncEngine

from app.sql import checkpoints, scopes
from app.sql.checkpoints import Stored
from app.sql.transactions import Driver, exclusive
from foldpoint.relay import is_latest


async def make_latest(pg: Driver, scope: int, checkpoint: int) -> None:
    """Move the latest pointer if the stored checkpoint dominates it (car-sync.md §9.8, §11.6)."""
    await scopes.hold(pg, scope)
    latest = await checkpoints.latest(pg, scope)
    candidate = await checkpoints.seqs(pg, scope, checkpoint)
    if latest is None or is_latest(candidate, await checkpoints.seqs(pg, scope, latest.id)):
        await checkpoints.point(pg, scope, latest=checkpoint)


async def keep(engine: AsyncEngine, scope: int, checkpoint: int) -> Stored:
    """Take in one that was just stored, and let go of the texts that nothing needs any more."""
    async with exclusive(engine) as pg:
        await make_latest(pg, scope, checkpoint)
        await checkpoints.prune(pg, scope)
        stored = await checkpoints.by_id(pg, scope, checkpoint)
        assert stored is not None
    async with exclusive(engine) as pg:
        await checkpoints.sweep(pg, scope)
    return stored
