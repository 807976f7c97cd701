"""The device wire: leases, in the crate's LeaseWire forms (car-sync.md §12.2). Held and Lost are 200 bodies."""

from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field, StrictInt

from app.routes.asking import AskingDep, JsonText, answer
from app.routes.documents import LEASE, gives
from app.services.access import Right
from app.services.executors import leasing
from app.services.executors.leasing import HeldNow
from app.services.roster import refuse_hosted
from foldpoint.canonical import U64_MAX
from foldpoint.lease import Lost

router = APIRouter(prefix="/sync/{scope}/leases/{agent}", tags=["device wire"])

U64 = Annotated[StrictInt, Field(ge=0, le=U64_MAX)]


WRITES = ("not_found", "too_large")


class Acquire(BaseModel):
    device_id: JsonText
    ttl_ms: U64


class Renew(Acquire):
    epoch: U64


class Release(BaseModel):
    device_id: JsonText
    epoch: U64


@router.post(
    "/acquire",
    responses=gives({"Granted": LEASE}, "reserved_device", "sealed_scope:503", "epoch_exhausted", *WRITES),
)
async def acquire(asking: AskingDep, scope: str, agent: str, body: Acquire) -> Response:
    """Take an agent's lease if nobody holds it unexpired."""
    refuse_hosted(body.device_id)
    async with asking.writing(scope, Right.LEASE, body.device_id) as work:
        outcome = await leasing.acquire(work.connection, work.reach.existing, agent, body.device_id, body.ttl_ms)
    if isinstance(outcome, HeldNow):
        lease = outcome.lease
        return answer({"Held": {"holder": lease.holder, "epoch": lease.epoch, "expires_at_ms": lease.expires_at_ms}})
    assert outcome.lease is not None
    return answer({"Granted": outcome.lease.to_json()})


@router.post("/renew", responses=gives({"Granted": LEASE}, *WRITES))
async def renew(asking: AskingDep, scope: str, agent: str, body: Renew) -> Response:
    """Move a lease's expiry, even past it if nobody stole it."""
    async with asking.writing(scope, Right.LEASE, body.device_id) as work:
        number = work.reach.existing
        outcome = await leasing.renew(work.connection, number, agent, body.device_id, body.epoch, body.ttl_ms)
    if isinstance(outcome, Lost):
        return answer(_lost(outcome))
    assert outcome.lease is not None
    return answer({"Granted": outcome.lease.to_json()})


@router.post("/release", responses=gives("Released", *WRITES))
async def release(asking: AskingDep, scope: str, agent: str, body: Release) -> Response:
    """Give a lease back; its epoch is kept."""
    async with asking.writing(scope, Right.LEASE, body.device_id) as work:
        outcome = await leasing.release(work.connection, work.reach.existing, agent, body.device_id, body.epoch)
    return answer(_lost(outcome) if isinstance(outcome, Lost) else "Released")


@router.get("", responses=gives({"Current": LEASE}, "not_found"))
async def current(asking: AskingDep, scope: str, agent: str) -> Response:
    """The recorded lease, an expired one too."""
    async with asking.reading(scope) as work:
        timed = await leasing.current(work.connection, work.reach.scope, agent) if work.reach.scope else None
    return answer({"Current": timed.lease.to_json() if timed and timed.lease else None})


def _lost(lost: Lost) -> dict[str, Any]:
    return {"Lost": {"claimed_epoch": lost.claimed_epoch, "current_epoch": lost.current_epoch}}
