"""The bare endpoint of P4b and P6: the caller's right is checked as for every call, one row is selected, nothing else.

A FastAPI application of its own, without Foldpoint's routes, middleware and error answers.
"""

from fastapi import FastAPI, Response

from app.main import create_app
from app.routes.asking import AskingDep, answer
from app.settings import Settings

ONE_ROW = "select no, head_seq from device where scope = $1 and slug = $2"


async def one_row(asking: AskingDep, scope: str, device: str) -> Response:
    """Where a device's chain ends."""
    async with asking.reading(scope) as work:
        row = await (await work.pg()).fetchrow(ONE_ROW, work.reach.existing, device)
    assert row is not None
    return answer({"no": row["no"], "head_seq": row["head_seq"]})


def application() -> FastAPI:
    """On the engine, the pool and the settings that the server would have."""
    bare = FastAPI(lifespan=create_app(Settings()).router.lifespan_context)
    bare.get("/bare/{scope}/{device}")(one_row)
    return bare
