"""The executor's questions: did this run commit, who may act (server.md §6)."""

from collections.abc import Sequence
from typing import Any

from app.problems import Problem
from app.services.access import Reach
from app.services.reading.cursors import key
from app.sql import intents, seen
from app.sql.transactions import Driver
from foldpoint.run_seen import newest, status_of
from foldpoint.state import Record

#: An agent and a run of it.
Run = tuple[str, str]


async def committed_runs(pg: Driver, reach: Reach, runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Each run's status, the oracle's record, and the newest intent seen of it. Raises sealed_scope."""
    outcomes = await seen.outcomes(pg, reach.existing, runs)
    if not all(committed for committed, _ in outcomes):
        open_intents(reach.closed_intents)
    return [
        {
            "status": status_of(record, found),
            "record": record and record.to_json(),
            "intent": (intent := newest(found)) and intent.to_json(),
        }
        for record, found in outcomes
    ]


async def committed_ids(pg: Driver, reach: Reach, agent: str, cursor: str | None, limit: int) -> dict[str, Any]:
    """A page of an agent's committed run ids; the cursor is null at the end. Raises sealed_scope."""
    open_intents(reach.closed_intents)
    cursors = reach.cursors
    after = cursors.read(cursor, key) or b""
    run_ids, last = await intents.committed_ids(pg, cursors.scope, agent, after, limit)
    return {"run_ids": run_ids, "cursor": None if last is None else cursors.text(last.hex())}


async def committed_run(pg: Driver, scope: int, run: Run) -> Record | None:
    """The idempotency oracle."""
    return (await intents.of_runs(pg, scope, intents.COMMITTED, [run]))[0]


async def holding_intent(pg: Driver, reach: Reach, run: Run) -> Record | None:
    """Who holds a run now. Raises sealed_scope."""
    open_intents(reach.closed_intents)
    return (await intents.of_runs(pg, reach.existing, intents.RUNS, [run]))[0]


def open_intents(closed: int) -> None:
    """Raises sealed_scope, as 503, if intents of the scope are closed for want of a key: nothing can be concluded."""
    if closed:
        detail = f"{closed} intents of this sealed scope are closed to the server"
        raise Problem("sealed_scope", detail, {"closed_intents": closed}, status=503)
