"""Ops as the project's own API gives and takes them."""

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Header, Query, Response

from app.routes.asking import AskingDep, BodyDep, DeviceDep, answer
from app.routes.documents import CURSORS, EMITTED, OPS, PUSH, RECORD, gives, takes
from app.routes.lines import CAUGHT_UP, CURSOR, NDJSON
from app.services.pushing.push import Result
from app.services.reading import paging

router = APIRouter(prefix="/v1/scopes/{scope}", tags=["ops"])

Seq = Annotated[int, Query(ge=0, lt=2**63)]


@router.get("/ops", responses=gives({"ops": [EMITTED], "cursor": "WyJl…", "caught_up": True}, "not_found", *CURSORS))
async def ops(
    asking: AskingDep,
    scope: str,
    cursor: str | None = None,
    limit: Annotated[int, Query(ge=1, le=paging.MAX_OPS)] = 1_000,
    device: str | None = None,
    from_seq: Seq = 0,
    to_seq: Seq | None = None,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
) -> Response:
    """Ops above a cursor in (hlc, op_id) order, or of one device between two seqs.

    A page is a per-device prefix of what remains: an op that commits late or carries an old stamp is never
    passed over. As NDJSON the cursor is in the `Foldpoint-Cursor` header.
    """
    async with asking.reading(scope) as work:
        pg, cursors = await work.pg(), work.reach.cursors
        lines = NDJSON in accept
        separator = b"\n" if lines else b","
        if device is not None:
            part = paging.Range(device, from_seq, to_seq)
            page = await paging.range_page(pg, cursors, part, cursor, limit, separator)
        else:
            page = await paging.page(pg, cursors, cursor, limit, separator)
    if lines:
        headers = {CURSOR: page.cursor, CAUGHT_UP: "true" if page.caught_up else "false"}
        return Response(page.body + b"\n" if page.body else b"", headers=headers, media_type=NDJSON)
    text = b'{"ops":[%b],"cursor":%b,"caught_up":%b}' % (
        page.body,
        orjson.dumps(page.cursor),
        b"true" if page.caught_up else b"false",
    )
    return Response(text, media_type="application/json")


@router.get(
    "/digests",
    responses=gives(
        {"device_id": "laptop", "from_seq": 0, "to_seq": 119, "count": 120, "digest": "9f86d0…"},
        "not_found",
        "cursor_gone",
    ),
)
async def digests(
    asking: AskingDep,
    scope: str,
    device: str,
    from_seq: Seq = 0,
    to_seq: Seq | None = None,
) -> Response:
    """How many ops a device has in a range, and a digest of their ids: where two halves differ, halve again.

    The digest is the hex SHA-256 of the op ids in seq order, each followed by a line feed.
    """
    async with asking.reading(scope) as work:
        part = paging.Range(device, from_seq, to_seq)
        return answer(await paging.digest(await work.pg(), work.reach.cursors, part))


@router.post(
    "/devices/{device}/ops",
    openapi_extra=takes(OPS),
    responses=gives({"results": [{"op_id": RECORD["op_id"], "result": "stored"}], "accepted": 1, "deduped": 0}, *PUSH),
)
async def push(asking: AskingDep, scope: str, device: DeviceDep, body: BodyDep) -> Response:
    """Push ops of a device, with one result per op; no contact is noted on the roster.

    The first refused op ends the request: those before it are stored, those after it are not attempted.
    """
    pushed = await asking.server.pusher.push(asking.caller, scope, device, body, on_wire=False)
    results: list[dict[str, Any]] = [
        {"op_id": op_id, "result": result} for op_id, result in zip(pushed.op_ids, pushed.results, strict=True)
    ]
    counts = {"results": results, "accepted": pushed.accepted, "deduped": pushed.deduped}
    if (refusal := pushed.refusal) is None:
        return answer(counts)
    rejected = pushed.results.index(Result.REJECTED)
    results[rejected] |= {"code": refusal.code, "detail": refusal.detail, **refusal.facts}
    return answer(counts)
