"""Session journals: what a coding agent did in a session, on any number of devices."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response

from app.problems import Problem
from app.routes.asking import AskingDep, BodyDep, answer, sent, unreadable
from app.routes.documents import CURSORS, FOLDED, STAMP, Responses, gives, takes
from app.routes.hosted import CODES, OP, WRITER, Call, Key, written
from app.routes.lines import NDJSON
from app.services.projections import telling_journals
from app.services.projections.importing_journals import Importing
from app.services.projections.journals import FOLD
from app.services.projections.writing_journals import Append, Take
from app.services.pushing.arrivals import off_loop
from foldpoint.canonical import U64_MAX, Unreadable
from foldpoint.hosted import read_writer
from foldpoint.journal.calls import NOW, read_append
from foldpoint.journal.claims import MOST
from foldpoint.journal.lines import split_lines
from foldpoint.journal.ops import KINDS, QUEUES
from foldpoint.projections import JOURNAL

router = APIRouter(prefix="/v1/scopes/{scope}/journals", tags=["session journals"])

SESSION = {"session": "s-1", "handle": "fix the login", "entries": 41, "last": STAMP}
SEEN = {"laptop": [1750000000000, 0]}
MESSAGE = {"role": "user", "content": "Which test fails?"}
STATE = {
    "session": "s-1",
    "messages": [MESSAGE],
    "unpersisted": [MESSAGE],
    "checkpoint_messages": None,
    "undo_stack": [],
    "steer_queue": ["and then the other one"],
    "follow_up_queue": [],
    "plan": [{"step": "find it", "status": "in_progress"}],
    "renames": [["s-1", "fix the login"]],
    "upgrades": [],
    "model_changes": [],
    "usage": [],
    "records": 4,
    "skipped": 0,
    "double_delivery": [],
    "last_checkpoints": {},
    "upgraded_by": [],
    "handle": "fix the login",
    "seen": SEEN,
}
IMPORTED = {
    "stored": 40,
    "duplicate": 0,
    "skipped": 1,
    "report": [{"line": 41, "detail": "unexpected end of data: line 1 column 24 (char 23)"}],
}
RECOVERY = {
    "messages": [MESSAGE],
    "unpersisted": 1,
    "checkpoint_messages": 1,
    "transcript_messages": 1,
    **{name: STATE[name] for name in ("steer_queue", "follow_up_queue", "plan", "undo_stack", "seen")},
}
LINE = '{"supercode_journal":1,"ts":"2026-03-01T12:00:00.000Z","op":"rename","from":"s-1","to":"fix the login"}\n'
NAMED: dict[str, Any] = {"type": "string", "minLength": 1, "example": "s-1"}
STAMPS = {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "integer", "minimum": 0}}}
ENTRY = {"type": "object", "required": ["op"], "properties": {"op": {"enum": list(KINDS)}}}

Session = Annotated[str, Query(min_length=1)]


def _told(*codes: str, **examples: Any) -> Responses:
    """`gives`, of an answer that has several forms."""
    shown = {name: {"value": example} for name, example in examples.items()}
    told = {"description": "Done", "content": {"application/json": {"examples": shown}}}
    return gives(None, *codes) | {200: told}


def _lines(example: str, *codes: str) -> Responses:
    """`gives`, of an answer in lines."""
    return gives(None, *codes) | {200: {"description": "Done", "content": {NDJSON: {"example": example}}}}


@router.get(
    "",
    responses=_told(
        *FOLDED,
        *CURSORS,
        sessions={"journals": [SESSION], "cursor": None},
        handle={"journal": SESSION, "alternatives": [], "more": False},
        session=STATE,
    ),
)
async def journals(
    asking: AskingDep,
    scope: str,
    session: Annotated[str | None, Query(min_length=1)] = None,
    handle: str | None = None,
    cursor: str | None = None,
    limit: Annotated[int, Query(ge=1, le=telling_journals.MAX_SESSIONS)] = 100,
) -> Response:
    """Sessions by key in byte order; with `handle`, the session that has this handle; with `session`, its state.

    A handle is the name that a session was given last. Of several with the same one, the last to be given it is
    meant, and the others are `alternatives`. A session that nobody wrote into has the state of an empty journal. Its
    `seen` says of each device the stamp of its last entry in this state: whoever goes on from here gives it back
    with what it appends. `double_delivery` names entries of a queue that several took who had not seen each other,
    and `last_checkpoints` each author's own last number.
    """
    if session is not None:
        if handle is not None:
            raise Problem("invalid_request", "a session or a handle, not both", {"path": "query.handle"})
        state = await asking.stream(scope, FOLD, session)
        return Response(await telling_journals.told(session, state), media_type="application/json")
    async with asking.reading_projection(scope, JOURNAL) as work:
        pg, cursors = await work.pg(), work.reach.cursors
        if handle is not None:
            return answer(await telling_journals.of_handle(pg, cursors.scope, handle, limit))
        return answer(await telling_journals.sessions(pg, cursors, cursor, limit))


@router.post(
    "/append",
    openapi_extra=takes(
        {
            "type": "object",
            "required": ["writer", "session", "entries"],
            "properties": {
                "writer": WRITER,
                "session": NAMED,
                "entries": {"type": "array", "items": ENTRY, "minItems": 1},
                "seen": {
                    "description": "the `seen` of the state that the writer goes by, or `now`",
                    "oneOf": [STAMPS, {"enum": [NOW]}],
                },
            },
            "example": {
                "writer": "web",
                "session": "s-1",
                "entries": [{"op": "enqueue", "queue": "steer", "text": "and then the other one"}],
                "seen": SEEN,
            },
        }
    ),
    responses=gives({"ops": [OP], "seen": SEEN}, *CODES),
)
async def append(asking: AskingDep, scope: str, body: BodyDep, key: Key = None) -> Response:
    """Append entries to a session: all of them, or none. An entry is a journal line without its framing.

    A rewind's number counts messages, a dequeue's entries, and a checkpoint covers messages: those that the writer had
    before it. `seen` says which these are: of each device, the entries up to a stamp, as the state gave it that the
    writer goes by; what a writer wrote itself, it has always seen. `"now"` means all that is there when the entries
    are written. Without `seen`, whatever sorts before the entry counts, also what arrives later.

    What the line reader of the harness would skip is refused.
    """
    appending = Append(asking.server.projections)

    def plan(fields: dict[str, Any], writer: str) -> Any:
        return appending.plan(read_append(fields, body), writer)

    call = Call(b"journals/append ", plan, appending.told, goes_by=appending)
    return await written(asking, scope, body, key, call)


@router.post(
    "/claim",
    openapi_extra=takes(
        {
            "type": "object",
            "required": ["writer", "session", "queue", "count"],
            "properties": {
                "writer": WRITER,
                "session": NAMED,
                "queue": {"enum": list(QUEUES)},
                "count": {"type": "integer", "minimum": 1, "maximum": MOST},
            },
        }
    ),
    responses=gives({"entries": [{"id": "5e88…", "text": "and then the other one"}], "op": OP}, *CODES),
)
async def claim(asking: AskingDep, scope: str, body: BodyDep, key: Key = None) -> Response:
    """Take the oldest entries of a queue, at most `count`; no two claims are ever handed the same entry.

    The server keeps what it handed out, whatever arrives later, and appends the dequeue that says it to the devices.
    Claim with an Idempotency-Key, a new one for each claim: the same call again is answered alike, so that entries
    are not lost with an answer.
    """
    taking = Take(asking.server.projections)
    call = Call(b"journals/claim ", taking.plan, taking.told, goes_by=taking)
    return await written(asking, scope, body, key, call)


@router.post(
    "/import",
    openapi_extra={"requestBody": {"required": True, "content": {NDJSON: {"schema": {"type": "string"}}}}},
    responses=gives(IMPORTED, *CODES),
)
async def import_file(asking: AskingDep, scope: str, session: Session, writer: str, body: BodyDep) -> Response:
    """Import a `.journal.jsonl` as it is on disk; `skipped` counts the lines that were not understood.

    These are kept as they are, and said why of, up to a thousand. Lines are stored some hundred in a transaction: an
    import that was cut short is done again and goes on, for a line that is there already is a duplicate. So a
    file that has grown is imported whole again; a line that was changed is another line.
    """
    try:
        read_writer(writer, "query.writer")
        lines = await off_loop(len(body), split_lines, body)
    except Unreadable as error:
        raise unreadable(Unreadable(error.detail, error.path or "body")) from error
    importing = Importing(asking.server.hosting, asking.caller, scope, session, writer)
    return answer((await importing.run(lines)).to_json())


@router.get("/export", responses=_lines(LINE, *FOLDED))
async def export(
    asking: AskingDep, scope: str, session: Session, form: Literal["records", "state"] = "records"
) -> Response:
    """A session as a `.journal.jsonl`: its records as they are, or with `form=state` lines that fold to its state.

    What one device wrote folds to the same either way. Of several, only the state does: a line cannot say what its
    author had seen.
    """
    if form == "state":
        state = await asking.stream(scope, FOLD, session)
        return sent(asking, await telling_journals.written_state(state), NDJSON)
    async with asking.reading_projection(scope, JOURNAL) as work:
        spool = await telling_journals.written_records(await work.pg(), work.reach.existing, session)
    return sent(asking, spool, NDJSON)


@router.get("/recovery", responses=gives(RECOVERY, *FOLDED))
async def recovery(
    asking: AskingDep,
    scope: str,
    session: Session,
    transcript_messages: Annotated[int, Query(ge=0, le=U64_MAX)],
    author: str | None = None,
) -> Response:
    """What a session that is reopened lacks: `messages` to append to a transcript of so many, the system message too.

    They are given only where the last checkpoint (1 if there is none) is what the transcript has: all, or none.
    With `author`, a device or a hosted writer, its own last checkpoint and what that covers are gone by. The queues,
    the plan and the undo stack are those to go on with.
    """
    state = await asking.stream(scope, FOLD, session)
    text = await telling_journals.told_recovery(state, transcript_messages, author)
    return Response(text, media_type="application/json")
