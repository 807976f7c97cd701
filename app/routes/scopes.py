"""A scope at a glance, and its roster as an admin needs it."""

from fastapi import APIRouter, Response

from app.routes.asking import AskingDep, answer
from app.services.access import Right
from app.services.overview import overview
from app.sql import devices, scopes
from foldpoint.relay import stable_frontier

router = APIRouter(prefix="/v1/scopes/{scope}", tags=["scope"])


@router.get("/")
@router.get("", include_in_schema=False)
async def glance(asking: AskingDep, scope: str) -> Response:
    """Head frontier, stable frontier, counts, latest checkpoint, devices."""
    async with asking.reading(scope) as work:
        return answer(await overview(work.connection, work.reach.existing))


@router.get("/roster")
async def roster(asking: AskingDep, scope: str) -> Response:
    """Every device with its chain, its contact, and why its last push was refused, if one was."""
    async with asking.reading(scope, Right.ADMIN) as work:
        number = work.reach.existing
        entries = await devices.roster(work.connection, number)
        rows = await devices.reports(work.connection, number)
        row = await scopes.row(work.connection, number)
    stable = stable_frontier(entries.values())
    return answer(
        {
            "devices": rows,
            "stable_frontier": stable and stable.to_json(),
            "checkpoint_problem": devices.problem_of(row),
        }
    )
