"""Stored checkpoints: a list, and each text, resumable by byte ranges."""

import re
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse

from app.problems import Problem
from app.routes.asking import AskingDep, answer
from app.routes.documents import gives
from app.services.checkpoint_text import stored_text
from app.services.cursors import decode, encode
from app.sql import checkpoints, scopes
from app.sql.checkpoints import Stored

router = APIRouter(prefix="/v1/scopes/{scope}/checkpoints", tags=["checkpoints"])

_RANGE = re.compile(r"bytes=(\d{1,18})-(\d{0,18})")


@router.get(
    "",
    responses=gives(
        {
            "checkpoints": [
                {
                    "checkpoint_hash": "ckpt-…",
                    "state_hash": "state-…",
                    "origin": "device",
                    "exact": True,
                    "size": 5120,
                    "created_at": "2026-01-01T00:00:00Z",
                    "latest": True,
                    "base": False,
                }
            ],
            "cursor": None,
        }
    ),
)
async def listed(
    asking: AskingDep, scope: str, cursor: str | None = None, limit: Annotated[int, Query(ge=1, le=100)] = 20
) -> Response:
    """Stored checkpoints, newest first, without their texts."""
    before = 2**63 - 1 if cursor is None else _read_id(cursor)
    async with asking.reading(scope) as work:
        number, pg = work.reach.existing, await work.pg()
        found = await checkpoints.listed(pg, number, before, limit + 1)
        row = await scopes.row(work.connection, number)
    page = found[:limit]
    return answer(
        {
            "checkpoints": [_entry(stored, row) for stored in page],
            "cursor": encode({"id": page[-1].id}) if len(found) > limit else None,
        }
    )


def _read_id(cursor: str) -> int:
    match decode(cursor):
        case {"id": int(number)} if 0 <= number < 2**63:
            return number
    raise Problem("invalid_cursor", "this is no cursor of this list")


def _entry(stored: Stored, scope: Any) -> dict[str, Any]:
    return {
        "checkpoint_hash": stored.hash,
        "state_hash": stored.state_hash,
        "origin": stored.origin,
        "exact": stored.exact,
        "size": stored.size,
        "created_at": stored.created_at,
        "latest": stored.id == scope.latest_checkpoint,
        "base": stored.id == scope.base_checkpoint,
    }


@router.get("/{checkpoint_hash}")
async def one(
    asking: AskingDep,
    scope: str,
    checkpoint_hash: str,
    range_: Annotated[str | None, Header(alias="range")] = None,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """A checkpoint's canonical text. It never changes, so a broken download goes on by `Range: bytes=N-`."""
    async with asking.reading(scope) as work:
        stored = await checkpoints.by_hash(await work.pg(), work.reach.existing, checkpoint_hash)
    if stored is None:
        raise Problem("not_found", "there is no such checkpoint")
    headers = {"ETag": f'"{stored.hash}"', "Accept-Ranges": "bytes"}
    if if_none_match == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    start, stop = _span(range_, stored.size)
    headers["Content-Length"] = str(stop - start)
    if range_ is not None:
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{stored.size}"
    text = stored_text(asking.server.engine, stored, start, stop)
    return StreamingResponse(text, 200 if range_ is None else 206, headers, "application/json")


def _span(header: str | None, size: int) -> tuple[int, int]:
    """The bytes of one range. Raises invalid_request, as 416, for any other."""
    if header is None:
        return 0, size
    found = _RANGE.fullmatch(header.strip())
    start = int(found[1]) if found else size
    stop = min(int(found[2]) + 1, size) if found and found[2] else size
    if start >= stop:
        raise Problem("invalid_request", f"the range must be bytes=FIRST-[LAST] within {size} bytes", status=416)
    return start, stop
