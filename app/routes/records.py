"""The folded state: whole, as its hash, and surface by surface."""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse

from app.problems import Problem
from app.routes.asking import AskingDep, answer, read_body, unreadable
from app.routes.documents import RECORD, gives
from app.services import listing
from app.services.whole_state import hash_answer, state_answer, state_at_answer
from foldpoint.canonical import Unreadable
from foldpoint.frontier import read_frontier
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
        }
    ),
)
async def state(
    asking: AskingDep,
    scope: str,
    at: Annotated[str | None, Query(description="A frontier, as a JSON object of device to seq.")] = None,
) -> Response:
    """SyncState with its hash and frontier: of everything held, or folded up to a past frontier."""
    if at is None:
        async with asking.reading(scope) as work:
            number = work.reach.existing
        text = state_answer(asking.server.patient, asking.server.whole, number)
        return StreamingResponse(text, media_type="application/json")
    try:
        frontier = read_frontier(read_body(at.encode()))
    except Unreadable as error:
        raise unreadable(error) from error
    async with asking.reading_whole(scope) as work:
        return answer_bytes(await state_at_answer(await work.pg(), work.reach.existing, frontier))


def answer_bytes(text: bytes) -> Response:
    return Response(text, media_type="application/json")


@router.get("/state/hash", responses=gives({"state_hash": "state-2a8b…", "frontier": {"laptop": 4}, "sealed_ops": 0}))
async def state_hash(asking: AskingDep, scope: str) -> Response:
    """The hash of the folded state, with the frontier it is of."""
    async with asking.reading_whole(scope) as work:
        return answer(await hash_answer(await work.pg(), work.reach.existing))


@router.get("/log/{surface}", responses=gives({"records": [RECORD], "cursor": None}))
async def log(asking: AskingDep, scope: str, surface: str, cursor: str | None = None, limit: Limit = 500) -> Response:
    """The folded records of a surface in (hlc, op_id) order."""
    found = BY_NAME.get(surface)
    if found is None or found is registry.SURFACE or found.tier is Tier.LEASED:
        raise Problem("not_found", f"there is no log of a surface {surface!r}")
    async with asking.reading(scope) as work:
        return answer(await listing.records(await work.pg(), work.reach.existing, found, None, cursor, limit))


@router.get("/registries/{kind:path}", responses=gives({"records": [RECORD], "cursor": None}))
async def registry_of(
    asking: AskingDep, scope: str, kind: str, cursor: str | None = None, limit: Limit = 500
) -> Response:
    """The folded records of a registry in (hlc, op_id) order."""
    async with asking.reading(scope) as work:
        pg, number = await work.pg(), work.reach.existing
        return answer(await listing.records(pg, number, registry.SURFACE, kind, cursor, limit))
