"""The device wire: a device's own calls (car-sync.md §12.3). Each is a contact, even if it then fails."""

from collections.abc import AsyncGenerator, Mapping
from functools import partial

import orjson
from fastapi import APIRouter, Response

from app.problems import Problem
from app.routes.asking import Asking, AskingDep, BodyDep, DeviceDep, Streamed, answer, read_body, unreadable
from app.routes.direct import DirectRoute
from app.routes.documents import EMITTED, ENTRY, FRONTIER, HLC, OPS, PUSH, REFUSED_OPS, gives, takes
from app.server import Server
from app.services import roster
from app.services.access import Right
from app.services.reading.reading_ops import Pull, begin_pull, pages
from foldpoint.canonical import Unreadable
from foldpoint.frontier import read_frontier
from foldpoint.op import read_stamp

router = APIRouter(prefix="/sync/{scope}/devices/{device}", tags=["device wire"], route_class=DirectRoute)

CONTACT = ("not_found", "reserved_device", "too_large")


@router.post(
    "",
    responses=gives(ENTRY, "not_found", "reserved_device"),
)
async def enroll(asking: AskingDep, scope: str, device: DeviceDep) -> Response:
    """Put a device on the roster; answers its entry."""
    async with asking.writing(scope, Right.SYNC, device) as work:
        no = await roster.contact(work.connection, work.reach.existing, device, asking.server.settings)
        entry = await roster.entry(work.connection, work.reach.existing, no)
    return answer(entry.to_json())


@router.post("/ops", openapi_extra=takes(OPS), responses=gives({"accepted": 5, "deduped": 0}, *PUSH, *REFUSED_OPS))
async def push(asking: AskingDep, scope: str, device: DeviceDep, body: BodyDep) -> Response:
    """Push ops of a device: a JSON array of OpRecord. What precedes a refused op stays stored."""
    pushed = await asking.server.pusher.push(asking.caller, scope, device, body, on_wire=True)
    counts = {"accepted": pushed.accepted, "deduped": pushed.deduped}
    if pushed.refusal is not None:
        raise Problem.of(pushed.refusal, **counts)
    return answer(counts)


@router.post(
    "/pull",
    openapi_extra=takes(FRONTIER),
    responses=gives({"ops": [EMITTED], "latest_checkpoint": None}, *CONTACT, "frontier_truncated"),
)
async def pull(asking: AskingDep, scope: str, device: DeviceDep, body: BodyDep) -> Response:
    """Every op above a seq frontier, in one answer, in (hlc, op_id) order."""
    async with asking.writing(scope, Right.SYNC, device) as work:
        await roster.contact(work.connection, work.reach.existing, device, asking.server.settings)
    try:
        since = read_frontier(read_body(body))
    except Unreadable as error:
        raise unreadable(error) from error
    number, pulled = await _begun(asking, scope, since)
    text = _pull_text(asking.server, number, pulled)
    return Streamed(asking, text, overtaken=partial(_begun, asking, scope, since))


async def _begun(asking: Asking, scope: str, since: Mapping[str, int]) -> tuple[int, Pull]:
    """The scope's number, and what a pull will send. Raises frontier_truncated."""
    async with asking.reading(scope, Right.SYNC) as work:
        number = work.reach.existing
        return number, await begin_pull(await work.pg(), number, since, sealed=work.reach.mode == "sealed")


async def _pull_text(server: Server, scope: int, pulled: Pull) -> AsyncGenerator[bytes]:
    lead = b'{"ops":['
    async for page in pages(server.engine, scope, pulled.spans, b","):
        yield lead + page.body
        lead = b","
    closing = b'],"latest_checkpoint":%b}' % orjson.dumps(pulled.latest_checkpoint)
    yield closing if lead == b"," else lead + closing


@router.post("/ack", openapi_extra=takes(HLC), responses=gives({"advanced": True, "reinstated": False}, *CONTACT))
async def ack(asking: AskingDep, scope: str, device: DeviceDep, body: BodyDep) -> Response:
    """Acknowledge everything up to a stamp; it lets GC drop what all active devices have."""
    try:
        hlc, problem = read_stamp(body), None
    except Unreadable as error:
        problem = unreadable(error)
    async with asking.writing(scope, Right.SYNC, device) as work:
        number = work.reach.existing
        no = await roster.contact(work.connection, number, device, asking.server.settings)
        if problem is None:
            outcome = await roster.acknowledge(work.connection, number, no, hlc)
    if problem is not None:
        raise problem
    return answer({"advanced": outcome.advanced, "reinstated": outcome.reinstated})
