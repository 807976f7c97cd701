"""A scope at a glance, and its roster as an admin needs it."""

from fastapi import APIRouter, Response

from app.routes.asking import AskingDep, answer
from app.routes.documents import ENTRY, RECORD, STAMP, gives
from app.services.access import Right
from app.services.reading.overview import overview
from app.services.roster import report

router = APIRouter(prefix="/v1/scopes/{scope}", tags=["scope"])

GLANCE = {
    "scope": "user:ada",
    "slug": "user_ada",
    "mode": "plain",
    "keys": None,
    "frontier": {"laptop": 4},
    "stable_frontier": STAMP,
    "ops": 5,
    "sealed_ops": 0,
    "records": {"conversation": 3, "intent": 1},
    "latest_checkpoint": "ckpt-0e5c…",
    "devices": [ENTRY],
}
ROSTER = {
    "devices": [
        {
            "device_id": "laptop",
            "slug": "laptop",
            "head": {"seq": 4, "hlc": STAMP, "head": RECORD["op_id"]},
            "dropped_below": 0,
            "roster": ENTRY,
            "acked_at_ms": 1750000000000,
            "problem": {"code": "gap", "detail": "…", "expected": 5, "found": 7, "at": "2026-01-01T00:00:00Z"},
        }
    ],
    "stable_frontier": STAMP,
    "gc_held_by": [{"device_id": "laptop", "acked": STAMP, "since_ms": 1750000000000, "last_seen_ms": 1750000000000}],
    "checkpoint_problem": None,
}


@router.get("/", responses=gives(GLANCE, "not_found"))
@router.get("", include_in_schema=False, responses=gives(GLANCE, "not_found"))
async def glance(asking: AskingDep, scope: str) -> Response:
    """Head frontier, stable frontier, counts, latest checkpoint, devices."""
    async with asking.reading(scope) as work:
        return answer(await overview(work.connection, work.reach.existing))


@router.get("/roster", responses=gives(ROSTER, "not_found"))
async def roster(asking: AskingDep, scope: str) -> Response:
    """Every device with its chain, its contact and its last refused push; and who holds GC back, since when."""
    async with asking.reading(scope, Right.ADMIN) as work:
        return answer(await report(work.connection, work.reach.existing))
