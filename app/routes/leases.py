"""Leases for executors: refusals are errors here, and times come as remaining milliseconds too."""

from fastapi import APIRouter, Response

from app.problems import Problem
from app.routes import sync_leases
from app.routes.asking import AskingDep, JsonText, answer
from app.routes.documents import FOLDED, LEASE, gives
from app.services.access import Right
from app.services.executors import leasing
from app.services.executors.leasing import HeldNow, Timed
from foldpoint.lease import Lost

router = APIRouter(prefix="/v1/scopes/{scope}/leases", tags=["leases"])


TIMED = {"lease": LEASE, "remaining_ms": 30000}


class AcquireLease(sync_leases.Acquire):
    agent_id: JsonText


class RenewLease(sync_leases.Renew):
    agent_id: JsonText


class ReleaseLease(sync_leases.Release):
    agent_id: JsonText


@router.post("/acquire", responses=gives(TIMED, *FOLDED, "lease_held", "epoch_exhausted", "too_large"))
async def acquire(asking: AskingDep, scope: str, body: AcquireLease) -> Response:
    """Take an agent's lease if nobody holds it unexpired; a renewal is another call."""
    async with asking.writing(scope, Right.LEASE, body.device_id) as work:
        number = work.reach.existing
        outcome = await leasing.acquire(work.connection, number, body.agent_id, body.device_id, body.ttl_ms)
    if isinstance(outcome, HeldNow):
        lease = outcome.lease
        facts = {"holder": lease.holder, "epoch": lease.epoch, "remaining_ms": outcome.remaining_ms}
        raise Problem("lease_held", f"{lease.holder} holds the lease at epoch {lease.epoch}", facts)
    return _timed(outcome)


@router.post("/renew", responses=gives(TIMED, "not_found", "lease_lost", "too_large"))
async def renew(asking: AskingDep, scope: str, body: RenewLease) -> Response:
    """Move a lease's expiry, even past it if nobody stole it."""
    async with asking.writing(scope, Right.LEASE, body.device_id) as work:
        number, device = work.reach.existing, body.device_id
        return _or_lost(await leasing.renew(work.connection, number, body.agent_id, device, body.epoch, body.ttl_ms))


@router.post("/release", responses=gives({"lease": None, "remaining_ms": 0}, "not_found", "lease_lost", "too_large"))
async def release(asking: AskingDep, scope: str, body: ReleaseLease) -> Response:
    """Give a lease back; its epoch is kept."""
    async with asking.writing(scope, Right.LEASE, body.device_id) as work:
        number, device = work.reach.existing, body.device_id
        return _or_lost(await leasing.release(work.connection, number, body.agent_id, device, body.epoch))


@router.get("", responses=gives(TIMED, "not_found"))
async def current(asking: AskingDep, scope: str, agent: str) -> Response:
    """The recorded lease, an expired one too."""
    async with asking.reading(scope) as work:
        return _timed(await leasing.current(work.connection, work.reach.existing, agent))


CLAIM = {"epoch": 18446744073709551615, "claimed_by": "travel"}
LET_GO = {
    "agent_id": "travel",
    "claim": None,
    "let_go": [{"claim": CLAIM["epoch"], "claimed_by": "travel", "reset_at": "2026-01-01T00:00:00Z", "token": 1}],
}


@router.get("/claim", responses=gives({"agent_id": "travel", "claim": CLAIM, "let_go": []}, *FOLDED))
async def claim(asking: AskingDep, scope: str, agent: str) -> Response:
    """The claim of an intent above which no epoch is left to grant, null if there is room; and those let go before."""
    async with asking.reading(scope, Right.ADMIN) as work:
        return answer(await leasing.claims(work.connection, work.reach.existing, agent))


@router.delete("/claim", responses=gives(LET_GO, *FOLDED, "epoch_exhausted"))
async def let_claim_go(asking: AskingDep, scope: str, agent: str) -> Response:
    """Let that claim go: leases are granted again, above every epoch that was granted before.

    The intent stays, and on every device the fence that it raised; committed runs are untouched.
    """
    async with asking.writing(scope, Right.ADMIN) as work:
        number = work.reach.existing
        await leasing.let_claim_go(work.connection, number, agent, asking.caller)
        return answer(await leasing.claims(work.connection, number, agent))


def _or_lost(outcome: Timed | Lost) -> Response:
    if isinstance(outcome, Lost):
        facts = {"claimed_epoch": outcome.claimed_epoch, "current_epoch": outcome.current_epoch}
        raise Problem("lease_lost", f"the lease is not held at epoch {outcome.claimed_epoch} by this holder", facts)
    return _timed(outcome)


def _timed(timed: Timed) -> Response:
    lease = timed.lease and timed.lease.to_json()
    return answer({"lease": lease, "remaining_ms": timed.remaining_ms})
