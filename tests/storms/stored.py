"""What the database holds, looked at past the servers, and whether it is what was written."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import asyncpg

from foldpoint.canonical import canonical, read_json
from foldpoint.chain import chains, verify_log
from foldpoint.fold import fold
from foldpoint.frontier import frontier_of
from foldpoint.op import Op
from foldpoint.op_text import read_op
from foldpoint.run_seen import sightings, status_of
from foldpoint.state import state_hash
from foldpoint.transcript import conversation_ids, transcript
from tests.storms.devices import AGENTS, RUNS
from tests.storms.fleet import Fleet

#: How long a test waits for something that must come.
PATIENCE_S = 30

STORED = """
select op.body, op.seq, device.id from op join device on device.scope = op.scope and device.no = op.device
where op.scope = (select id from scope where slug = $1)
"""
HEADS = "select id, head_seq, head_op_id from device where scope = $1 and head_seq is not null"
WAITING = """
select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
"""
LEFT_OPEN = """
select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'
"""
TERMINATE = """
select count(pg_terminate_backend(pid)) from pg_stat_activity
where datname = current_database() and application_name = 'foldpoint' and ($1 or wait_event_type = 'Lock')
"""


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    """A connection of one's own, as soon as a database that recovers takes one."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(asyncpg.CannotConnectNowError):
                connection = await asyncpg.connect(url)
                break
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def held(url: str, statement: str, *arguments: object) -> AsyncIterator[Any]:
    """Keep the row locks of a statement, from outside, until the block ends."""
    async with connected(url) as connection, connection.transaction():
        assert await connection.fetchrow(statement, *arguments) is not None
        yield connection


def held_scope(url: str, scope: str) -> AbstractAsyncContextManager[Any]:
    """Keep the lock that every push of the scope takes first."""
    return held(url, "select id from scope where slug = $1 for no key update", scope)


def held_device(url: str, scope: str, device: str) -> AbstractAsyncContextManager[Any]:
    """Keep a device's row: its push stops after its ops are inserted and before they are committed."""
    by_name = "select no from device where scope = (select id from scope where slug = $1) and slug = $2 for update"
    return held(url, by_name, scope, device)


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a condition that nothing announces."""
    async with asyncio.timeout(PATIENCE_S):
        while not await is_so():  # noqa: ASYNC110 - it is another process that will make it so
            await asyncio.sleep(0.01)


async def until_waiting(url: str, number: int) -> None:
    """Wait until so many transactions of the servers wait for a lock: at least so many, or none."""
    async with connected(url) as connection:

        async def waiting() -> bool:
            count = await connection.fetchval(WAITING)
            return bool(count >= number if number else count == 0)

        await until(waiting)


async def open_transactions(url: str) -> int:
    """How many connections of the servers are left inside a transaction that does nothing."""
    async with connected(url) as connection:
        return int(await connection.fetchval(LEFT_OPEN))


async def terminate(url: str, *, idle: bool = False) -> int:
    """End the servers' connections that wait for a lock, or all of them; how many."""
    async with connected(url) as connection:
        return int(await connection.fetchval(TERMINATE, idle))


async def stored_ops(url: str, scope: str) -> list[Op]:
    async with connected(url) as connection:
        return [read_op(bytes(row["body"])) for row in await connection.fetch(STORED, scope)]


async def check(fleet: Fleet, scope: str, expected: Sequence[Op]) -> None:
    """The scope holds these ops and no others, each once, in whole chains; all that is derived agrees with them."""
    await _check_rows(fleet.database_url, scope, expected)
    await _check_state(fleet, scope, expected)
    await _check_conversations(fleet, scope, expected)
    await _check_runs(fleet, scope, expected)


async def _check_rows(url: str, scope: str, expected: Sequence[Op]) -> None:
    async with connected(url) as connection:
        stored = [read_op(bytes(row["body"])) for row in await connection.fetch(STORED, scope)]
        row = await connection.fetchrow("select id, ops, max_wall_ms from scope where slug = $1", scope)
        heads = {head["id"].decode(): head for head in await connection.fetch(HEADS, row["id"])}
    assert Counter(op.text() for op in stored) == Counter(op.text() for op in expected)
    verify_log(stored)
    assert (row["ops"], row["max_wall_ms"]) == (len(stored), max(op.hlc.wall_ms for op in stored))
    last = {device: chain[-1] for device, chain in chains(stored).items()}
    assert {device: head["head_seq"] for device, head in heads.items()} == frontier_of(stored)
    assert {device: head["head_op_id"].hex() for device, head in heads.items()} == {
        device: op.op_id.removeprefix("op-") for device, op in last.items()
    }


async def _check_state(fleet: Fleet, scope: str, expected: Sequence[Op]) -> None:
    answer: Any = read_json((await fleet.call("GET", f"/v1/scopes/{scope}/state")).content)
    state = fold(expected)
    assert canonical(answer["state"]) == state.text()
    assert answer["state_hash"] == state_hash(state)
    assert answer["frontier"] == frontier_of(expected)


async def _check_conversations(fleet: Fleet, scope: str, expected: Sequence[Op]) -> None:
    answer = (await fleet.call("GET", f"/v1/scopes/{scope}/conversations")).json()
    state = fold(expected)
    turns = {name: transcript(state, name) for name in conversation_ids(state)}
    listed = {row.pop("conversation_id"): row for row in answer["conversations"]}
    assert listed == {
        name: {"turns": len(said), "first": said[0].record.hlc.to_json(), "last": said[-1].record.hlc.to_json()}
        for name, said in turns.items()
    }


async def _check_runs(fleet: Fleet, scope: str, expected: Sequence[Op]) -> None:
    asked = [{"agent_id": agent, "run_id": run} for agent in AGENTS for run in RUNS]
    answer = (await fleet.call("POST", f"/v1/scopes/{scope}/committed-runs/lookup", json={"runs": asked})).json()
    state, seen = fold(expected), sightings(op for op in expected if op.surface == "intent")
    for run, found in zip(asked, answer["runs"], strict=True):
        agent, key = run["agent_id"], "id:" + run["run_id"]
        own = {slot: record for slot, record in seen.items() if (slot.agent_id, slot.key) == (agent, key)}
        assert found["status"] == status_of(state.committed_run(agent, run["run_id"]), own)
