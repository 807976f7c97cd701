"""Writes for clients that keep no op log: the server writes their chain."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Header, Response

from app.routes.asking import Asking, AskingDep, BodyDep, read_body, unreadable
from app.routes.documents import EMITTED, STAMP, gives, takes
from app.services.hosting import Hold, Once, Plan, Told, Write, drafts, outcome, turn
from app.services.projections.writes import StreamWrite
from app.services.pushing.arrivals import off_loop
from foldpoint.canonical import Json, Unreadable
from foldpoint.hosted import read_drafts, read_outcome, read_writer
from foldpoint.op import Op

router = APIRouter(prefix="/v1/scopes/{scope}", tags=["hosted writers"])

LONGEST_KEY = 255
INTENT = ("agent_id", "run_id", "epoch", "status", "if_current")
WRITER = {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$", "example": "web"}
OP = {**EMITTED, "device_id": "hosted-web-0f3a9b2c", "hlc": {**STAMP, "device_id": "hosted-web-0f3a9b2c"}}
CODES = ("not_found", "plain_scope", "sealed_scope", "sealed_scope:503", "clock_skew", "too_large", "too_many_ops")


def _body(required: list[str], **properties: Any) -> dict[str, Any]:
    named = {"writer": WRITER, **properties}
    return takes({"type": "object", "required": ["writer", *required], "properties": named})


class Call(NamedTuple):
    """What a route does: reads its fields, for a writer, into a plan; and makes an answer of the ops.

    `read` is how its body is read as JSON. Of `fields` beside the writer nothing else may be named: what a name with a
    slip in it asked for would silently not be done. `goes_by` is the write whose stream the plan reads.
    """

    name: bytes
    plan: Callable[[dict[str, Any], str], Plan]
    told: Told
    read: Callable[[bytes], Json] = read_body
    fields: tuple[str, ...] | None = None
    goes_by: StreamWrite[Any] | None = None


Key = Annotated[
    str | None,
    Header(
        alias="idempotency-key",
        max_length=LONGEST_KEY,
        description="The same call with the same key within 24 h is carried out once, and answered alike.",
    ),
]


@router.post(
    "/hosted/append",
    openapi_extra=_body(
        ["ops"],
        ops={
            "type": "array",
            "items": {
                "type": "object",
                "required": ["surface", "payload"],
                "properties": {"surface": {}, "payload": {}, "scope": {}},
                "example": {"surface": "knowledge", "payload": {"id": "f1"}},
            },
        },
    ),
    responses=gives({"ops": [OP]}, *CODES),
)
async def append(asking: AskingDep, scope: str, body: BodyDep, key: Key = None) -> Response:
    """Write ops on any surface: all of them, or none."""

    def plan(fields: dict[str, Any], _writer: str) -> Plan:
        return drafts(read_drafts(fields.get("ops")))

    return await written(asking, scope, body, key, Call(b"append ", plan, emitted))


@router.post(
    "/turns",
    openapi_extra=_body(
        ["conversation_id", "role"],
        conversation_id={"type": "string"},
        role={"enum": ["user", "assistant", "tool", "tool_result"]},
        content={"type": "string"},
        tool_calls={"type": "array", "items": {"type": "object", "required": ["name", "arguments"]}},
        tool_use_id={"type": "string"},
        provenance={"enum": ["internal", "external"]},
        ok={"type": "boolean"},
        timestamp={"type": "integer", "description": "in ms; by default the server's clock"},
    ),
    responses=gives({"op": OP}, *CODES),
)
async def turns(asking: AskingDep, scope: str, body: BodyDep, key: Key = None) -> Response:
    """Write a turn of a conversation; it needs content, tool calls or a `tool_use_id`."""

    def plan(fields: dict[str, Any], _writer: str) -> Plan:
        return turn(fields)

    return await written(asking, scope, body, key, Call(b"turns ", plan, _one))


@router.post(
    "/intents",
    openapi_extra=_body(
        ["agent_id", "run_id", "epoch", "status"],
        agent_id={"type": "string"},
        run_id={"type": "string"},
        epoch={"type": "integer", "minimum": 1},
        status={"enum": ["pending", "committed", "failed"]},
        if_current={"type": "boolean", "description": "only while the writer holds the agent's lease at this epoch"},
    ),
    responses=gives({"recorded": True, "op": OP}, *CODES, "stale_epoch"),
)
async def intents(asking: AskingDep, scope: str, body: BodyDep, key: Key = None) -> Response:
    """Record what became of a run. A run that committed stays so: then nothing is recorded, and the answer says it."""

    def plan(fields: dict[str, Any], writer: str) -> Plan:
        if_current = fields.get("if_current", False)
        if not isinstance(if_current, bool):
            raise Unreadable("expected true or false", "if_current")
        return outcome(writer, read_outcome(fields), if_current=if_current)

    return await written(asking, scope, body, key, Call(b"intents ", plan, _recorded, fields=INTENT))


async def emitted(_hold: Hold, ops: Sequence[Op]) -> dict[str, Any]:
    return {"ops": [op.to_json() for op in ops]}


async def _one(_hold: Hold, ops: Sequence[Op]) -> dict[str, Any]:
    return {"op": ops[0].to_json()}


async def _recorded(_hold: Hold, ops: Sequence[Op]) -> dict[str, Any]:
    return {"recorded": True, "op": ops[0].to_json()}


async def written(asking: Asking, scope: str, body: bytes, key: str | None, call: Call) -> Response:
    """Carry out a hosted write whose fields are a JSON object with a `writer`."""
    try:
        writer, plan = await off_loop(len(body), _read, body, call)
        once = None if key is None else Once.of(key, call.name + body)
        write = Write(writer, len(body), plan, call.told, once)
    except Unreadable as error:
        raise unreadable(error) from error
    if call.goes_by is not None:
        await asking.fold_ahead(scope, call.goes_by)
    return Response(await asking.server.hosting.write(asking.caller, scope, write), media_type="application/json")


def _read(body: bytes, call: Call) -> tuple[str, Plan]:
    """The writer of a call, and what it would do. Raises Unreadable, invalid_request."""
    fields = call.read(body)
    if not isinstance(fields, dict):
        raise Unreadable("expected an object")
    if call.fields is not None:
        for name in fields.keys() - {"writer", *call.fields}:
            raise Unreadable("unknown", name)
    writer = read_writer(fields.get("writer"))
    return writer, call.plan(fields, writer)
