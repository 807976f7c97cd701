"""Contexts of stored messages: what an agent's next request is made of (stored-message.md)."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import orjson
from fastapi import APIRouter, Header, Query, Response

from app.routes.asking import Asking, AskingDep, BodyDep, answer, sent, unreadable
from app.routes.byte_ranges import is_held
from app.routes.documents import CURSORS, FOLDED, RECORD, STAMP, gives, takes
from app.routes.hosted import CODES, OP, WRITER, Call, Key, emitted, written
from app.routes.lines import NDJSON
from app.services.hosting import Plan
from app.services.projections.context_writes import Appending, Target, import_ops, read_ops, refused
from app.services.projections.contexts import FOLD
from app.services.pushing.arrivals import off_loop
from app.services.reading import listing
from app.services.reading.spool import Spool
from app.sql import snapshots
from app.sql.entries import StreamKey
from foldpoint.canonical import Unreadable, canonical
from foldpoint.hlc import U32_MAX
from foldpoint.hosted import read_writer
from foldpoint.projections import CONTEXT
from foldpoint.stored_message.checkpoint import restore_checkpoint, session_checkpoint
from foldpoint.stored_message.context import context_of
from foldpoint.stored_message.files import export_records, import_file
from foldpoint.stored_message.pairing import left_out, paired
from foldpoint.stored_message.refusals import Refused
from foldpoint.stored_message.render import render
from foldpoint.stored_message.session import SessionContext
from foldpoint.stored_message.shapes import read_document

router = APIRouter(prefix="/v1/scopes/{scope}/contexts", tags=["contexts"])

T = TypeVar("T")

MESSAGE: dict[str, Any] = {
    "partition": "history",
    "role": "user",
    "body": {"form": "inline", "text": "Which bed is it?", "tool_call_id": None, "is_error": False},
    "tool_calls": [],
    "tokens": 5,
}
PUT = {"op": "put", "message_id": "m1", "pos": 0, "message": MESSAGE}
TURN = {"role": "user", "content": "Which bed is it?"}
TOTALS = {"system": 0, "knowledge": 0, "history": 5}
RESUMED = {"system_text": "", "messages": [TURN], "left_out": {"turns": 0, "calls": [], "results": []}}
HELD = {
    "messages": [MESSAGE],
    "partition_tokens": TOTALS,
    "history_len": 1,
    "message_ids": ["m1"],
    "pending": [],
    "last": {"hlc": STAMP, "op_id": RECORD["op_id"]},
}
Session = Annotated[str, Query(description="any string")]
Window = Annotated[int, Query(ge=0, le=U32_MAX, description="the tokens there are for input, reserves taken off")]
OPS = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["op", "message_id"],
        "properties": {
            "op": {"enum": ["put", "move", "remove"]},
            "message_id": {"type": "string"},
            "pos": {"type": "integer"},
            "partition": {"enum": ["system", "history"]},
            "message": {"type": "object"},
        },
        "example": PUT,
    },
}


@router.get("", responses=gives(HELD, *FOLDED, *CURSORS))
async def contexts(
    asking: AskingDep,
    scope: str,
    session: Annotated[str | None, Query(description="whose messages; without it the sessions are listed")] = None,
    cursor: str | None = None,
    limit: Annotated[int, Query(ge=1, le=listing.MAX_CONVERSATIONS)] = 100,
) -> Response:
    """The messages of a session in order, with their totals; or the sessions, by name in byte order.

    `pending` are messages that were moved but are not there yet; `last` is the last op of the session.
    """
    if session is not None:
        return Response(await _off_loop(asking, scope, session, _held), media_type="application/json")
    async with asking.reading_projection(scope, CONTEXT) as work:
        page, more = await listing.named_streams(await work.pg(), work.reach.cursors, CONTEXT, cursor, limit)
    found = [{"session": one.name, "entries": one.entries, "last": one.last[0].to_json()} for one in page]
    return answer({"contexts": found, "cursor": more})


@router.post(
    "/ops",
    openapi_extra=takes(
        {
            "type": "object",
            "required": ["writer", "session", "ops"],
            "properties": {"writer": WRITER, "session": {"type": "string"}, "ops": OPS},
        }
    ),
    responses=gives({"ops": [OP]}, *CODES),
)
async def ops(asking: AskingDep, scope: str, body: BodyDep, key: Key = None) -> Response:
    """Put, move and remove messages: all of it, or nothing.

    Refused is what a gate of the original kernel refuses, and what names a message that was removed. Legal spellings
    are stored as a checkpoint holds them.
    """

    def plan(fields: dict[str, Any], writer: str) -> Plan:
        session = fields.get("session")
        if not isinstance(session, str):
            raise Unreadable("expected a string", "session")
        return appending.plan(Target(writer, session), read_ops(fields.get("ops")))

    appending = Appending(asking.server.projections)
    call = Call(b"contexts ", plan, emitted, read_document, ("session", "ops"), appending)
    return await written(asking, scope, body, key, call)


@router.get("/render", responses=gives({"system_text": "", "turns": [TURN], "exact": True}, *FOLDED))
async def rendered(asking: AskingDep, scope: str, session: Session, window: Window) -> Response:
    """What a model is shown of a session within a window. `exact`: the original kernel counts the same tokens."""

    def shown(folded: SessionContext) -> bytes:
        context = context_of(folded.messages())
        context.check_totals()
        made = render(context, window)
        return orjson.dumps({**made.to_json(), "exact": made.exact})

    return Response(await _off_loop(asking, scope, session, shown), media_type="application/json")


@router.get("/resume", responses=gives(RESUMED, *FOLDED))
async def resumed(asking: AskingDep, scope: str, session: Session, window: Window | None = None) -> Response:
    """The messages to hand to a provider: every call with its result, every result with its call.

    With a window they are those that a model is shown, without it all of history; the system text comes beside them.
    """

    def turns(folded: SessionContext) -> bytes:
        context = context_of(folded.messages())
        shown = render(context, U32_MAX if window is None else window)
        said = [row.live for row in context.history] if window is None else shown.turns
        kept = paired(said)
        messages = [turn.to_json() for turn in kept]
        return orjson.dumps({"system_text": shown.system_text, "messages": messages, "left_out": left_out(said, kept)})

    return Response(await _off_loop(asking, scope, session, turns), media_type="application/json")


@router.get("/checkpoint", responses=gives({"logical_state": {}, "checkpoint_digest": "sha256:0a4b…"}, *FOLDED))
async def checkpoint(
    asking: AskingDep, scope: str, session: Session, if_none_match: Annotated[str | None, Header()] = None
) -> Response:
    """A checkpoint that the original kernel restores, of an operation that has done nothing yet."""

    def document(folded: SessionContext) -> tuple[str, bytes]:
        made = session_checkpoint(session, folded.messages())
        restore_checkpoint(made)
        return made["checkpoint_digest"], canonical(made)

    digest, text = await _off_loop(asking, scope, session, document)
    headers = {"ETag": f'"{digest}"'}
    if is_held(if_none_match, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return Response(text, media_type="application/json", headers=headers)


def _held(folded: SessionContext) -> bytes:
    last = folded.stamp and {"hlc": folded.stamp[0].to_json(), "op_id": folded.stamp[1]}
    pending = sorted(folded.pending)
    more = {"message_ids": folded.message_ids(), "pending": pending, "last": last}
    return orjson.dumps({**folded.to_json(), **more})


async def _off_loop(asking: Asking, scope: str, session: str, made: Callable[[SessionContext], T]) -> T:
    folded = await asking.stream(scope, FOLD, session)
    try:
        return await asyncio.to_thread(made, folded)
    except Refused as error:
        raise refused(error, "") from error


@router.get("/export", responses=gives(PUT, *FOLDED))
async def export(asking: AskingDep, scope: str, session: Session) -> Response:
    """The ops of a session in their order, as JSON lines."""
    key, spool = StreamKey.named(CONTEXT, session), Spool()
    async with asking.reading_projection(scope, CONTEXT) as work:
        async for page in snapshots.above(await work.pg(), work.reach.existing, key, None):
            spool.write(b"".join(export_records(page)))
    return sent(asking, spool, NDJSON)


@router.post(
    "/import",
    openapi_extra={"requestBody": {"required": True, "content": {NDJSON: {"schema": {"type": "string"}}}}},
    responses=gives(
        {"stored": 2, "duplicate": 0, "skipped": 1, "report": [{"line": 3, "detail": "op: unknown variant"}]},
        *CODES,
    ),
)
async def import_context(asking: AskingDep, scope: str, body: BodyDep, session: Session, writer: str) -> Response:
    """Take in the lines of an export, or a checkpoint of the original kernel as puts. A second time adds nothing.

    What is no op is skipped and said why of, up to a thousand. Lines are stored some in a transaction: an import that
    breaks off is finished by the same call again.
    """
    try:
        target = Target(read_writer(writer), session)
        found = await off_loop(len(body), import_file, body)
    except Refused as error:
        raise refused(error, "body") from error
    except Unreadable as error:
        raise unreadable(error) from error
    return answer(await import_ops(asking.server.hosting, asking.caller, scope, target, len(body), found))
