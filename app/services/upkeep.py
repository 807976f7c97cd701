"""What keeps a scope small, whoever asks for it: coverage, collection, retention."""

from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from app.services import retaining
from app.services.access import Caller
from app.services.collecting import Collecting
from app.services.making_checkpoints import make_at_head
from app.sql.scopes import is_plain


async def collect_and_retain(
    engine: AsyncEngine, scope: int, as_of_ms: int | None = None, caller: Caller | None = None
) -> dict[str, Any]:
    """Make a checkpoint if coverage is missing, drop what the roster lets go, apply the policy if one is set.

    Nothing is dropped of a sealed scope: its devices need every op.
    """
    if not await is_plain(engine, scope):
        return {"dropped": {}, "retention": None}
    collecting = Collecting(engine, scope, caller, by_admin=True)
    if not await collecting.is_covered():
        await make_at_head(engine, scope)
    dropped = await collecting.run()
    trim = await retaining.retain(engine, scope, as_of_ms)
    return {"dropped": dropped, "retention": trim and retaining.told(trim)}
