"""Runs of agents as ledgers of recorded events, which several executors extend and one at a time acts on."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from app.problems import Problem
from app.routes.asking import AskingDep, BodyDep, answer, sent
from app.routes.documents import CURSORS, FOLDED, LEASE, RECORD, Either, Responses, gives, takes
from app.routes.hosted import CODES, WRITER, Call, Key, written
from app.routes.lines import NDJSON
from app.services.executors import leasing
from app.services.hosting import Plan
from app.services.projections import run_ledgers, telling_ledgers
from app.services.projections.importing_ledgers import import_file
from app.services.projections.recording import Appending, Sealing
from app.services.pushing.arrivals import off_loop
from foldpoint.canonical import Unreadable
from foldpoint.hosted import read_writer
from foldpoint.projections import RUN_LEDGER
from foldpoint.run_ledger.calls import read_append, read_seal
from foldpoint.run_ledger.reading import Undecodable, identifier

router = APIRouter(prefix="/v1/scopes/{scope}/run-ledgers", tags=["run ledgers"])

APPEND = ("run_id", "records", "epoch", "seal")
SEAL = ("run_id", "through_seq", "winners", "epoch")
RUN = {"type": "string", "example": "run-lisbon"}
EPOCH = {
    "type": "integer",
    "minimum": 1,
    "description": "of the agent's lease, which the writer holds; an append passes also while nobody holds it",
}
ID = "9f0c2a6b5d3e7f18492a0c4b6d8e1f3057a9bc2d4e6f8091a3b5c7d9e0f21436"
CALL = {"id": "c1", "tool": "book", "effect": "external_side_effect", "input": {"bed": 3}}
COMMAND = {"command": "execute_tool", "call": CALL}
RECORDED = {
    "seq": 0,
    "occurred_at_ms": 1750000000000,
    "event": {"event": "tool_started", "call_id": "c1", "run_id": "r"},
}
LISTED = {
    "run_id": "run-lisbon",
    "agent_id": "travel",
    "phase": "ready_to_execute_tool",
    "command": "execute_tool",
    "next_seq": 6,
    "blocked_at": None,
    "sealed": 3,
    "entries": 7,
}
WHOLE = {
    "state": {
        "run_id": "run-lisbon",
        "next_seq": 6,
        "phase": {"phase": "ready_to_execute_tool", "call": CALL},
        "pending_compaction_turn": None,
    },
    "command": COMMAND,
    "statuses": {ID: {"status": "folded"}},
    "blocked_at": None,
    "settled": 0,
    "sealed": 3,
    "agent_id": "travel",
    "entries": 7,
    "last": {"id": ID, "seq": 5, "op_id": RECORD["op_id"], "device_id": "laptop"},
    "lease": LEASE,
    "remaining_ms": 30000,
}
STATUS = {"id": ID, "seq": 5, "status": "folded"}
LOST = {
    "id": ID,
    "seq": 5,
    "status": "superseded",
    "winner": ID,
    "op_id": RECORD["op_id"],
    "device_id": "phone",
    "record": RECORDED,
}
READBACK = {
    "ok": True,
    "entries": [{"entry": "tool_call", "turn_id": "t1", "call": CALL}],
    "final_phase": {"phase": "ready_to_execute_tool", "call": CALL},
    "next_seq": 6,
}
LEDGER: Responses = {200: {"description": "Done", "content": {NDJSON: {"example": RECORDED}}}}
REPORT = {
    "stored": 12,
    "duplicate": 0,
    "skipped": 1,
    "report": [{"line": 13, "error_class": "syntax", "detail": "unexpected end of data"}],
}


LINES = {"requestBody": {"required": True, "content": {NDJSON: {"schema": {"type": "string"}}}}}
#: Bytes of an answer per entry, about.
ABOUT = 100


def _body(required: list[str], **properties: Any) -> dict[str, Any]:
    named = {"writer": WRITER, "run_id": RUN, **properties}
    return takes({"type": "object", "required": ["writer", "run_id", *required], "properties": named})


@router.get("", responses=gives(Either(runs={"runs": [LISTED], "cursor": None}, run=WHOLE), *FOLDED, *CURSORS))
async def ledgers(
    asking: AskingDep,
    scope: str,
    run: str | None = None,
    cursor: str | None = None,
    limit: Annotated[int, Query(ge=1, le=telling_ledgers.MAX_RUNS)] = 50,
) -> Response:
    """The runs by id in byte order; with `run` one of them: its state, what its host does next, and who may.

    `statuses` are of the seqs from `settled` on: of a long run, those below are told by `/run-ledgers/statuses`.
    """
    async with asking.reading_projection(scope, RUN_LEDGER) as work:
        pg, streams = await work.pg(), asking.server.projections
        if run is None:
            found, reads = await telling_ledgers.runs(streams, pg, work.where, work.reach.cursors, cursor, limit)
        else:
            reads = [await streams.read(pg, work.where, run_ledgers.FOLD, run)]
            found = {**run_ledgers.answer(reads[0]), "lease": None, "remaining_ms": 0}
            if (agent := reads[0].now.state.agent_id) is not None:
                timed = await leasing.current(work.connection, work.reach.existing, agent)
                found |= {"lease": timed.lease and timed.lease.to_json(), "remaining_ms": timed.remaining_ms}
    for read in reads:
        await streams.keep(read)
    return await off_loop(sum(read.entries for read in reads) * ABOUT, answer, found)


@router.get("/statuses", responses=gives({"statuses": [STATUS], "cursor": None}, *FOLDED, *CURSORS))
async def statuses(
    asking: AskingDep,
    scope: str,
    run: str,
    cursor: str | None = None,
    limit: Annotated[int, Query(ge=1, le=telling_ledgers.MAX_STATUSES)] = 1_000,
) -> Response:
    """What became of every record and seal of a run, by seq: a page ends with a whole seq, and so may be longer.

    This call and the three below replay the ledger, which takes as long as it is.
    """
    async with asking.folded_whole(scope) as work:
        pg, cursors = await work.pg(), work.reach.cursors
        return answer(await telling_ledgers.statuses(pg, work.where, cursors, run, cursor, limit))


@router.get("/conflicts", responses=gives({"conflicts": [LOST]}, *FOLDED))
async def conflicts(asking: AskingDep, scope: str, run: str) -> Response:
    """The records and seals that are no part of the ledger: superseded, illegal or after the end, and why."""
    async with asking.folded_whole(scope) as work:
        spool = await telling_ledgers.lost(await work.pg(), work.where, run)
    return sent(asking, spool)


@router.get("/readback", responses=gives(READBACK, *FOLDED))
async def readback(asking: AskingDep, scope: str, run: str) -> Response:
    """The ledger as an audit reads it: everything, whatever its visibility."""
    async with asking.folded_whole(scope) as work:
        spool = await telling_ledgers.read_back(await work.pg(), work.where, run)
    return sent(asking, spool)


@router.get("/export", responses=gives(None, *FOLDED) | LEDGER)
async def export(asking: AskingDep, scope: str, run: str) -> Response:
    """The ledger as JSON lines, one RecordedEvent each: whoever reads it replays it without an error."""
    async with asking.folded_whole(scope) as work:
        spool = await telling_ledgers.exported(await work.pg(), work.where, run)
    return sent(asking, spool, NDJSON)


@router.post("/import", openapi_extra=LINES, responses=gives(REPORT, *CODES))
async def import_(asking: AskingDep, scope: str, run: str, writer: str, body: BodyDep) -> Response:
    """Record a ledger file, as it is on disk: JSON lines, the last one perhaps torn.

    Lines that cannot be read, or are of another run, are skipped and told. A second import adds nothing; one that was
    broken off goes on where it ended.
    """
    try:
        named, about = read_writer(writer), identifier(run)
    except Unreadable as error:
        path = "query." + ("run" if isinstance(error, Undecodable) else "writer")
        raise Problem("invalid_request", error.detail, {"path": path}) from error
    return answer(await import_file(asking.server.hosting, asking.caller, scope, named, about, body))


@router.post(
    "/append",
    openapi_extra=_body(
        ["records"],
        records={"type": "array", "items": {"type": "object", "example": RECORDED}},
        epoch=EPOCH,
        seal={"type": "boolean", "description": "seal what ends with these records, or refuse them; needs an epoch"},
    ),
    responses=gives(
        {"statuses": [STATUS], "next_seq": 6, "command": None}, *CODES, "stale_epoch", "gap", "seal_mismatch"
    ),
)
async def append(asking: AskingDep, scope: str, body: BodyDep, key: Key = None) -> Response:
    """Record events of a run: all of them, or none. What is legal is folded, what is not is kept and told.

    With an `epoch` nothing is recorded unless the writer's claim on the run's agent is current. With `seal` all must be
    folded, and nothing that comes later displaces them: so an executor records `tool_started` or `model_requested`, and
    begins the effect only when it is answered 200. What the same writer recorded before is not recorded twice.
    """
    appending = Appending(asking.server.projections, len(body))

    def plan(_fields: dict[str, Any], _writer: str) -> Plan:
        return appending.of(read_append(body))

    call = Call(b"run-ledgers/append ", plan, appending.told, fields=APPEND, goes_by=appending)
    return await written(asking, scope, body, key, call)


@router.post(
    "/seal",
    openapi_extra=_body(
        ["through_seq", "epoch"],
        through_seq={"type": "integer", "minimum": 0},
        winners={"type": "array", "items": {"type": "string"}, "description": "what the executor saw, up to that seq"},
        epoch=EPOCH,
    ),
    responses=gives({"sealed": 6, "next_seq": 6, "command": COMMAND}, *CODES, "stale_epoch", "gap", "seal_mismatch"),
)
async def seal(asking: AskingDep, scope: str, body: BodyDep, key: Key = None) -> Response:
    """Fix the winners of a run up to a seq, as the holder of its agent's lease; `sealed` is the first seq that is not.

    `winners` are the ids that the executor acts on: if others have won by now, nothing is sealed.
    """
    sealing = Sealing(asking.server.projections)

    def plan(_fields: dict[str, Any], _writer: str) -> Plan:
        return sealing.of(read_seal(body))

    call = Call(b"run-ledgers/seal ", plan, sealing.told, fields=SEAL, goes_by=sealing)
    return await written(asking, scope, body, key, call)
