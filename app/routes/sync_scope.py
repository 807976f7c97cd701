"""The device wire: what belongs to a scope and to no device (car-sync.md §12.3)."""

from fastapi import APIRouter, Response

from app.problems import Problem
from app.routes.asking import AskingDep, BodyDep, Streamed, answer
from app.routes.documents import CHECKPOINT, ENTRY, LATEST, STAMP, gives, takes
from app.services.access import Right
from app.services.checkpoint_text import stored_text
from app.services.collecting import Collecting
from app.sql import checkpoints, devices
from foldpoint.relay import stable_frontier

router = APIRouter(prefix="/sync/{scope}", tags=["device wire"])

#: Why a checkpoint is not stored.
JUDGED = (
    "not_found",
    "sealed_scope",
    "checkpoint_invalid",
    "checkpoint_unverified",
    "checkpoint_state_mismatch",
    "frontier_collected:409",
    "too_large",
)


@router.put("/checkpoints", openapi_extra=takes(CHECKPOINT), responses=gives(True, *JUDGED))
async def put_checkpoint(asking: AskingDep, scope: str, body: BodyDep) -> Response:
    """Publish a checkpoint; true if it was stored now. It must be the fold of the ops held here."""
    async with asking.writing(scope, Right.SYNC) as work:
        if work.reach.mode == "sealed":
            raise Problem("sealed_scope", "sealing devices refuse every checkpoint, so none is kept")
        number = work.reach.existing
    return answer(await asking.server.judging.put(asking.caller, number, body))


@router.get("/checkpoints/latest", responses=gives(LATEST, "not_found", schema=CHECKPOINT))
async def latest_checkpoint(asking: AskingDep, scope: str) -> Response:
    """The checkpoint a device bootstraps from, or null."""
    async with asking.reading(scope) as work:
        if work.reach.scope is None or work.reach.mode == "sealed":
            return answer(None)
        latest = await checkpoints.latest(await work.pg(), work.reach.scope)
    if latest is None:
        return answer(None)
    return Streamed(asking, stored_text(asking.server.engine, latest))


@router.get("/roster", responses=gives([ENTRY], "not_found"))
async def roster(asking: AskingDep, scope: str) -> Response:
    """Every device that ever made contact, in byte order."""
    async with asking.reading(scope) as work:
        entries = await devices.roster(work.connection, work.reach.scope) if work.reach.scope else {}
    return answer([entry.to_json() for entry in entries.values()])


@router.get("/stable-frontier", responses=gives(STAMP, "not_found"))
async def stable(asking: AskingDep, scope: str) -> Response:
    """The smallest ack of the active devices, or null."""
    async with asking.reading(scope) as work:
        entries = await devices.roster(work.connection, work.reach.scope) if work.reach.scope else {}
    hlc = stable_frontier(entries.values())
    return answer(hlc and hlc.to_json())


@router.post("/gc", responses=gives({"dropped": {"laptop": 120}}, "not_found"))
async def gc(asking: AskingDep, scope: str) -> Response:
    """Drop the ops that every active device has acknowledged and a stored checkpoint covers."""
    async with asking.reading(scope, Right.SYNC) as work:
        number, sealed = work.reach.scope, work.reach.mode == "sealed"
    if number is None or sealed:
        return answer({"dropped": {}})
    async with asking.server.whole:
        return answer({"dropped": await Collecting(asking.server.patient, number, asking.caller).run()})
