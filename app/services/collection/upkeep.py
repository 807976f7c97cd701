"""What keeps a scope small, whoever asks for it: coverage, collection, retention."""

from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from app.services.access import Caller
from app.services.checkpoints.making_checkpoints import make_at_head
from app.services.collection.collecting import Collecting
from app.services.collection.policies import told
from app.services.collection.retaining import Retaining
from app.sql import scopes
from app.sql.checkpoints import Stored
from app.sql.transactions import begun, reading


async def checkpoint_now(engine: AsyncEngine, scope: int, caller: Caller | None = None) -> Stored:
    """A checkpoint at the head, after a retention that was cut short. Raises sealed_scope."""
    await Retaining(engine, scope, caller).finish()
    return await make_at_head(engine, scope, caller)


async def collect_and_retain(
    engine: AsyncEngine, scope: int, as_of_ms: int | None = None, caller: Caller | None = None
) -> dict[str, Any]:
    """Make a checkpoint if coverage is missing, drop what the roster lets go, apply the policy if one is set.

    Nothing is dropped of a sealed scope: its devices need every op.
    """
    if not await is_plain(engine, scope):
        return {"dropped": {}, "retention": None}
    retaining = Retaining(engine, scope, caller)
    finished = await retaining.finish()
    collecting = Collecting(engine, scope, caller, by_admin=True)
    if not await collecting.is_covered():
        await make_at_head(engine, scope, caller)
    dropped = await collecting.run()
    trim = await retaining.run(as_of_ms) or finished
    return {"dropped": dropped, "retention": trim and told(trim)}


async def is_plain(engine: AsyncEngine, scope: int) -> bool:
    """Whether a scope's ops are folded; one without any op is not plain yet."""
    async with reading(engine) as connection:
        return await scopes.mode(await begun(connection), scope) == "plain"
