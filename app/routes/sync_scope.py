"""The device wire: what belongs to a scope and to no device (car-sync.md §12.3)."""

from collections.abc import AsyncGenerator

from fastapi import APIRouter, Response

from app.problems import Problem
from app.routes.asking import Asking, AskingDep, BodyDep, Streamed, answer
from app.routes.documents import CHECKPOINT, ENTRY, LATEST, STAMP, gives, takes
from app.services.access import Right
from app.services.checkpoints.checkpoint_text import stored_text
from app.services.collection.collecting import Collecting
from app.services.reading.reading_ops import Overtaken
from app.sql import checkpoints, devices
from app.sql.checkpoints import Stored
from foldpoint.relay import stable_frontier
from foldpoint.slug import slug

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
    latest = await _latest(asking, scope)
    return answer(None) if latest is None else Streamed(asking, _latest_text(asking, scope, latest))


async def _latest(asking: Asking, scope: str) -> Stored | None:
    async with asking.reading(scope) as work:
        if work.reach.scope is None or work.reach.mode == "sealed":
            return None
        return await checkpoints.latest(await work.pg(), work.reach.scope)


async def _latest_text(asking: Asking, scope: str, latest: Stored) -> AsyncGenerator[bytes]:
    """The text of the latest, of a later one if it is removed before any of it is sent. Raises Overtaken."""
    begun = False
    while True:
        try:
            async for piece in stored_text(asking.server.engine, latest):
                begun = True
                yield piece
            return
        except Overtaken:
            if begun:
                raise
            later = await _latest(asking, scope)
            if later is None or later.id == latest.id:
                raise
            latest = later


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
    async with asking.server.whole.take(slug(scope)):
        return answer({"dropped": await Collecting(asking.server.patient, number, asking.caller).run()})
