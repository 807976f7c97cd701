"""Whether the process lives, whether it can work, and what it takes."""

import asyncio

from fastapi import APIRouter, Response

from app.migrate import at_head
from app.problems import Problem
from app.routes.asking import CallerDep, ServerDep, answer
from app.routes.documents import gives, refuses, says
from app.services.access import known
from app.settings import Settings
from app.sql.transactions import reading

router = APIRouter(tags=["health"])

#: A database that does not answer within so many seconds is away.
PING_S = 2


@router.get("/healthz", responses=says({"status": "ok"}))
async def healthz() -> Response:
    """The process answers."""
    return answer({"status": "ok"})


@router.get("/readyz", responses=says({"status": "ready"}) | refuses("unavailable"))
async def readyz(server: ServerDep) -> Response:
    """The database answers and its schema is this server's."""
    try:
        async with asyncio.timeout(PING_S), server.probe.connect() as connection:
            ready = await at_head(connection)
    except Exception as error:  # whatever keeps the database away, the answer is that it is
        raise Problem("unavailable", "the database does not answer") from error
    if not ready:
        raise Problem("unavailable", "the database's schema is not this server's")
    return answer({"status": "ready"})


@router.get("/v1/limits", responses=gives(Settings.model_construct().limits()))
async def limits(server: ServerDep, caller: CallerDep) -> Response:
    """What a request may bring."""
    async with reading(server.engine) as connection:
        await known(connection, caller)
    return answer(server.settings.limits())
