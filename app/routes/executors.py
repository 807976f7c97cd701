"""What a failover executor asks before a side effect. A wrong answer here sends the email twice."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from app.routes.asking import AskingDep, JsonText, answer
from app.routes.documents import CURSORS, FOLDED, LEASE, RECORD, RUN, gives
from app.routes.frontiers import AtDep
from app.routes.sync_leases import U64
from app.services.executors import answering, leasing
from app.services.executors.answering_past import committed_at
from app.sql import intents
from foldpoint.fence import check_dispatch, may_dispatch

router = APIRouter(prefix="/v1/scopes/{scope}", tags=["executors"])

MAX_LOOKUPS = 1_000


class Run(BaseModel):
    agent_id: JsonText
    run_id: JsonText


class Lookup(BaseModel):
    runs: Annotated[list[Run], Field(max_length=MAX_LOOKUPS)]


class Dispatch(Run):
    device_id: JsonText
    epoch: U64


@router.get("/committed-run", responses=gives(RUN, *FOLDED, "frontier_collected"))
async def committed_run(asking: AskingDep, scope: str, agent: str, run: str, at: AtDep = None) -> Response:
    """Whether a run committed, now or by a past frontier. `in_doubt` means that its effect may have happened."""
    if at is not None:
        async with asking.folded_whole(scope) as work:
            return answer(await committed_at(await work.pg(), work.reach, (agent, run), at, work.keyring))
    async with asking.folded(scope) as work:
        (found,) = await answering.committed_runs(await work.pg(), work.reach, [(agent, run)])
    return answer(found)


@router.post("/committed-runs/lookup", responses=gives({"runs": [RUN]}, *FOLDED, "too_large"))
async def lookup(asking: AskingDep, scope: str, body: Lookup) -> Response:
    """The same for up to 1,000 runs, in the order asked."""
    async with asking.folded(scope) as work:
        runs = [(run.agent_id, run.run_id) for run in body.runs]
        found = await answering.committed_runs(await work.pg(), work.reach, runs)
    return answer({"runs": found})


@router.get("/committed-runs", responses=gives({"run_ids": ["run-lisbon"], "cursor": None}, *FOLDED, *CURSORS))
async def committed_runs(
    asking: AskingDep,
    scope: str,
    agent: str,
    cursor: str | None = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 10_000,
) -> Response:
    """The ids of an agent's committed runs, in byte order."""
    async with asking.folded(scope) as work:
        return answer(await answering.committed_ids(await work.pg(), work.reach, agent, cursor, limit))


@router.get("/intent", responses=gives({"record": RECORD}, *FOLDED))
async def intent(asking: AskingDep, scope: str, agent: str, run: str) -> Response:
    """Who holds a run now; to know whether it committed, ask for the committed run."""
    async with asking.folded(scope) as work:
        record = await answering.holding_intent(await work.pg(), work.reach, (agent, run))
    return answer({"record": record and record.to_json()})


@router.get("/agents", responses=gives({"agent_id": "travel", "fencing_epoch": 3, "lease": LEASE}, *FOLDED))
async def agents(asking: AskingDep, scope: str, agent: str) -> Response:
    """An agent's fence and its lease."""
    async with asking.folded(scope) as work:
        fence = await intents.fence(await work.pg(), work.reach.existing, agent)
        timed = await leasing.current(work.connection, work.reach.existing, agent)
    lease: dict[str, Any] | None = timed.lease.to_json() if timed.lease else None
    return answer({"agent_id": agent, "fencing_epoch": fence, "lease": lease})


@router.post("/fence", responses=gives({"decision": "proceed", "may_dispatch": True}, *FOLDED, "too_large"))
async def fence(asking: AskingDep, scope: str, body: Dispatch) -> Response:
    """May this device, at this epoch, act for the agent in this run?"""
    async with asking.folded(scope) as work:
        pg, reach = await work.pg(), work.reach
        committed = await answering.committed_run(pg, reach.existing, (body.agent_id, body.run_id))
        if committed is None:
            answering.open_intents(reach.closed_intents)
        timed = await leasing.current(work.connection, reach.existing, body.agent_id)
    decision = check_dispatch(committed, timed.lease, body.device_id, body.epoch)
    return answer({**decision, "may_dispatch": may_dispatch(decision)})
