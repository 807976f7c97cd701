"""Stored checkpoints: a list, and each text, resumable by byte ranges."""

from functools import partial
from typing import Annotated, Any, NoReturn

from fastapi import APIRouter, Header, Query, Response

from app.problems import Problem
from app.routes.asking import Asking, AskingDep, Streamed, answer
from app.routes.byte_ranges import is_held, span
from app.routes.documents import CHECKPOINT, CURSORS, LATEST, gives
from app.routes.lines import CURSOR, NDJSON
from app.services.access import Right
from app.services.checkpoints.checkpoint_entries import cursor_after, entries, gone
from app.services.checkpoints.checkpoint_lines import stored_lines
from app.services.checkpoints.checkpoint_text import stored_text
from app.services.collection.upkeep import checkpoint_now
from app.services.reading.cursors import invalid_cursor
from app.sql import checkpoints
from foldpoint.slug import slug

router = APIRouter(prefix="/v1/scopes/{scope}/checkpoints", tags=["checkpoints"])


ENTRY = {
    "checkpoint_hash": "ckpt-…",
    "state_hash": "state-…",
    "origin": "server",
    "exact": True,
    "size": 5120,
    "created_at": "2026-01-01T00:00:00Z",
    "frontier": {"laptop": 41},
    "cursor": "WyJl…",
    "latest": True,
    "base": False,
}


@router.get("", responses=gives({"checkpoints": [ENTRY], "cursor": None}, "not_found", *CURSORS))
async def listed(
    asking: AskingDep, scope: str, cursor: str | None = None, limit: Annotated[int, Query(ge=1, le=100)] = 20
) -> Response:
    """Stored checkpoints, newest first, without their texts, each with the `/ops` cursor that goes on from it."""
    async with asking.reading(scope) as work:
        number, pg, cursors = work.reach.existing, await work.pg(), work.reach.cursors
        read = cursors.read(cursor, _id)
        before = 2**63 - 1 if read is None else read
        found = await checkpoints.listed(pg, number, before, limit + 1)
        page = await entries(pg, cursors, found[:limit])
    more = cursors.text(found[limit - 1].id) if len(found) > limit else None
    return answer({"checkpoints": page, "cursor": more})


def _id(place: Any) -> int:
    if type(place) is int and 0 <= place < 2**63:
        return place
    raise invalid_cursor()


@router.post("", responses=gives(ENTRY, "not_found", "sealed_scope"))
async def make(asking: AskingDep, scope: str) -> Response:
    """Make a checkpoint of everything that is folded now; it becomes the latest."""
    async with asking.writing(scope, Right.ADMIN) as work:
        cursors = work.reach.cursors
        if work.reach.mode == "sealed":
            raise Problem("sealed_scope", "sealing devices refuse every checkpoint, so none is made")
    async with asking.server.whole.take(slug(scope)):
        stored = await checkpoint_now(asking.server.patient, cursors.scope, asking.caller)
    async with asking.reading(scope) as work:
        return answer((await entries(await work.pg(), cursors, [stored]))[0])


@router.get(
    "/{checkpoint_hash}",
    responses={
        **gives(LATEST, "not_found", "cursor_gone", "invalid_request:416", schema=CHECKPOINT),
        206: {"description": "The bytes of one range"},
        304: {"description": "The client has it"},
    },
)
async def checkpoint(
    asking: AskingDep,
    scope: str,
    checkpoint_hash: str,
    range_: Annotated[str | None, Header(alias="range")] = None,
    if_range: Annotated[str | None, Header()] = None,
    if_none_match: Annotated[str | None, Header()] = None,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
) -> Response:
    """A checkpoint's canonical text. It never changes, so a broken download goes on by `Range: bytes=N-`.

    As NDJSON: a line with its hashes, frontier and the `/ops` cursor after it, a line per record, and how many
    they were. The cursor is in the `Foldpoint-Cursor` header too.
    """
    async with asking.reading(scope) as work:
        pg, cursors = await work.pg(), work.reach.cursors
        stored = await checkpoints.by_hash(pg, cursors.scope, checkpoint_hash)
        if stored is None:
            raise Problem("not_found", "there is no such checkpoint")
        if not stored.kept:
            raise await gone(pg, cursors)
        cursor = await cursor_after(pg, cursors, stored)
    if NDJSON in accept:
        lines = stored_lines(asking.server.engine, stored, cursor)
        return Streamed(
            asking, lines, headers={CURSOR: cursor}, media_type=NDJSON, overtaken=partial(_gone, asking, scope)
        )
    etag = f'"{stored.hash}"'
    headers = {"ETag": etag, "Accept-Ranges": "bytes", "Vary": "Accept", CURSOR: cursor}
    if is_held(if_none_match, etag):
        return Response(status_code=304, headers=headers)
    part = span(range_, if_range, etag, stored.size)
    start, stop = part or (0, stored.size)
    headers["Content-Length"] = str(stop - start)
    if part is not None:
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{stored.size}"
    text = stored_text(asking.server.engine, stored, start, stop)
    return Streamed(asking, text, 200 if part is None else 206, headers, overtaken=partial(_gone, asking, scope))


async def _gone(asking: Asking, scope: str) -> NoReturn:
    """Raises cursor_gone, for a checkpoint whose text was removed before any of it was sent."""
    async with asking.reading(scope) as work:
        raise await gone(await work.pg(), work.reach.cursors)
