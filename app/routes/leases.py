"""Leases for executors: refusals are errors here, and times come as remaining milliseconds too."""

from typing import Any

from fastapi import APIRouter, Response

from app.problems import Problem
from app.routes import sync_leases
from app.routes.asking import AskingDep, JsonText, answer
from app.routes.documents import LEASE, gives
from app.services import leasing
from app.services.access import Right
from app.services.leasing import HeldNow, Timed
from foldpoint.lease import Lost

router = APIRouter(prefix="/v1/scopes/{scope}/leases", tags=["leases"])


class Acquire(sync_leases.Acquire):
    agent_id: JsonText


class Renew(sync_leases.Renew):
    agent_id: JsonText


class Release(sync_leases.Release):
    agent_id: JsonText


@router.post("/acquire", responses=gives({"lease": LEASE, "remaining_ms": 30000}))
async def acquire(asking: AskingDep, scope: str, body: Acquire) -> Response:
    """Take an agent's lease if nobody holds it unexpired; a renewal is another call."""
    async with asking.writing(scope, Right.LEASE, body.device_id) as work:
        number = work.reach.existing
        outcome = await leasing.acquire(work.connection, number, body.agent_id, body.device_id, body.ttl_ms)
    if isinstance(outcome, HeldNow):
        lease: Any = outcome.timed.lease
        facts = {"holder": lease.holder, "epoch": lease.epoch, "remaining_ms": outcome.timed.remaining_ms}
        raise Problem("lease_held", f"{lease.holder} holds the lease at epoch {lease.epoch}", facts)
    return _timed(outcome)


@router.post("/renew", responses=gives({"lease": LEASE, "remaining_ms": 30000}))
async def renew(asking: AskingDep, scope: str, body: Renew) -> Response:
    """Move a lease's expiry, even past it if nobody stole it."""
    async with asking.writing(scope, Right.LEASE, body.device_id) as work:
        number, device = work.reach.existing, body.device_id
        return _or_lost(await leasing.renew(work.connection, number, body.agent_id, device, body.epoch, body.ttl_ms))


@router.post("/release", responses=gives({"lease": None, "remaining_ms": 0}))
async def release(asking: AskingDep, scope: str, body: Release) -> Response:
    """Give a lease back; its epoch is kept."""
    async with asking.writing(scope, Right.LEASE, body.device_id) as work:
        number, device = work.reach.existing, body.device_id
        return _or_lost(await leasing.release(work.connection, number, body.agent_id, device, body.epoch))


@router.get("", responses=gives({"lease": LEASE, "remaining_ms": 30000}))
async def current(asking: AskingDep, scope: str, agent: str) -> Response:
    """The recorded lease, an expired one too."""
    async with asking.reading(scope) as work:
        return _timed(await leasing.current(work.connection, work.reach.existing, agent))


def _or_lost(outcome: Timed | Lost) -> Response:
    if isinstance(outcome, Lost):
        facts = {"claimed_epoch": outcome.claimed_epoch, "current_epoch": outcome.current_epoch}
        raise Problem("lease_lost", f"the lease is not held at epoch {outcome.claimed_epoch} by this holder", facts)
    return _timed(outcome)


def _timed(timed: Timed) -> Response:
    lease = timed.lease and timed.lease.to_json()
    return answer({"lease": lease, "remaining_ms": timed.remaining_ms})
