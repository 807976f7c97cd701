"""The folded state: whole, as its hash, and surface by surface."""

from collections.abc import AsyncGenerator
from typing import Annotated

from fastapi import APIRouter, Query, Response

from app.problems import Problem
from app.routes.asking import Asking, AskingDep, Streamed, answer, sent
from app.routes.documents import CURSORS, FOLDED, RECORD, gives
from app.routes.frontiers import WHAT, AtDep, read_frontier_text
from app.services.reading import listing
from app.services.reading.whole_state import diff_answer, hash_answer, state_answer, state_at_answer
from foldpoint.surfaces import BY_NAME, Tier, registry

router = APIRouter(prefix="/v1/scopes/{scope}", tags=["state"])

Limit = Annotated[int, Query(ge=1, le=listing.MAX_RECORDS)]


@router.get(
    "/state",
    responses=gives(
        {
            "state_hash": "state-2a8b…",
            "frontier": {"laptop": 4},
            "sealed_ops": 0,
            "state": {"logs": {}, "registries": {}, "intents": {}},
        },
        *FOLDED,
        "frontier_collected",
    ),
)
async def state(asking: AskingDep, scope: str, at: AtDep = None) -> Response:
    """SyncState with its hash and frontier: of everything held, or folded up to a past frontier."""
    if at is None:
        return Streamed(asking, _state(asking, scope))
    async with asking.folded_whole(scope) as work:
        spool = await state_at_answer(await work.pg(), work.reach.existing, at, work.keyring)
    return sent(asking, spool)


async def _state(asking: Asking, scope: str) -> AsyncGenerator[bytes]:
    async with asking.folded_whole(scope) as work:
        spool = await state_answer(await work.pg(), work.reach.existing)
    async for piece in spool.pieces():
        yield piece


@router.get(
    "/state/hash",
    responses=gives({"state_hash": "state-2a8b…", "frontier": {"laptop": 4}, "sealed_ops": 0}, *FOLDED),
)
async def state_hash(asking: AskingDep, scope: str) -> Response:
    """The hash of the folded state, with the frontier it is of."""
    async with asking.folded_whole(scope) as work:
        return answer(await hash_answer(await work.pg(), work.reach.existing))


@router.get(
    "/diff",
    responses=gives(
        {
            "from": {"laptop": 3},
            "to": {"laptop": 4},
            "added": [{"log": "knowledge", "key": "id:f1", "record": RECORD}],
            "changed": [{"registry": "models", "key": "id:m1", "before": RECORD, "after": RECORD}],
            "gone": [{"agent": "travel", "view": "runs", "key": "id:run-1", "record": RECORD}],
            "fences": [{"agent_id": "travel", "before": 2, "after": 3}],
        },
        *FOLDED,
        "frontier_collected",
    ),
)
async def diff(
    asking: AskingDep,
    scope: str,
    old: Annotated[str, Query(alias="from", description=WHAT)],
    new: Annotated[str, Query(alias="to", description=WHAT)],
) -> Response:
    """What changed in the state from one frontier to another, record by record."""
    between = read_frontier_text(old), read_frontier_text(new)
    async with asking.folded_whole(scope) as work:
        spool = await diff_answer(await work.pg(), work.reach.existing, *between, work.keyring)
    return sent(asking, spool)


@router.get("/log/{surface}", responses=gives({"records": [RECORD], "cursor": None}, *FOLDED, *CURSORS))
async def log(asking: AskingDep, scope: str, surface: str, cursor: str | None = None, limit: Limit = 500) -> Response:
    """The folded records of a surface in (hlc, op_id) order."""
    found = BY_NAME.get(surface)
    if found is None or found is registry.SURFACE or found.tier is Tier.LEASED:
        raise Problem("not_found", f"there is no log of a surface {surface!r}")
    async with asking.folded(scope) as work:
        return answer(await listing.records(await work.pg(), work.reach.cursors, found, None, cursor, limit))


@router.get(
    "/registries/{kind:path}",
    responses=gives({"records": [RECORD], "cursor": None}, *FOLDED, *CURSORS),
)
async def registry_of(
    asking: AskingDep, scope: str, kind: str, cursor: str | None = None, limit: Limit = 500
) -> Response:
    """The folded records of a registry in (hlc, op_id) order."""
    async with asking.folded(scope) as work:
        return answer(await listing.records(await work.pg(), work.reach.cursors, registry.SURFACE, kind, cursor, limit))
