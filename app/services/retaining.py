"""Retention, where an admin set a policy: base rows are trimmed, and a trimmed base checkpoint is made (server.md §5).

What is above the floor is not touched, as in the crate's compaction plan (car-sync.md §10.5). A run that a crash
cut short goes on where it stopped, with the policy and the time it began with.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import orjson
from sqlalchemy.ext.asyncio import AsyncEngine

from app.problems import Problem
from app.services.making_checkpoints import write_at_head
from app.sql import checkpoints, histories, scopes, trims
from app.sql.histories import Place
from app.sql.keys import raw_op_id, stream_key
from app.sql.transactions import Driver, begun, exclusive, reading
from app.sql.trims import BaseRow, Trim
from foldpoint.canonical import Json, Unreadable
from foldpoint.retention import Policy, RetentionError, doomed, fact_of, read_policy, stub_of, timestamp
from foldpoint.state import Record
from foldpoint.surfaces import SURFACES, Surface, Tier, conversation

#: Records trimmed in one transaction under the scope's lock.
STEP = 500
#: Records looked at together in search of the first or last turn.
ENDS = 50
LOGS = [surface for surface in SURFACES if surface.tier is Tier.GROW_ONLY]


def read_valid_policy(value: Json) -> Policy:
    """A policy that can be applied. Raises invalid_request."""
    try:
        policy = read_policy(value)
        policy.check(routed=True)
    except Unreadable as error:
        raise Problem("invalid_request", str(error), {"path": error.path}) from error
    except RetentionError as error:
        raise Problem("invalid_request", f"{error}: no rule may trim this surface", {"path": "policy"}) from error
    return policy


async def report(pg: Driver, scope: int) -> dict[str, Any]:
    """The policy that is set, and what retention did last."""
    policy = await scopes.retention(pg, scope)
    last = await trims.last(pg, scope)
    return {"policy": policy and orjson.loads(policy), "last": last and told(last)}


def told(trim: Trim) -> dict[str, Any]:
    return {
        "policy": orjson.loads(trim.policy),
        "as_of_ms": trim.as_of_ms,
        "dropped": trim.dropped,
        "tombstoned": trim.tombstoned,
        "done": trim.done,
    }


async def retain(engine: AsyncEngine, scope: int, as_of_ms: int | None = None) -> Trim | None:
    """Apply the scope's policy to what is below the floor; None if there is nothing that it would trim."""
    async with exclusive(engine) as alone:
        await scopes.work_alone(alone, scope)
        trim, found = await _begun(engine, scope, as_of_ms)
        if trim is None:
            return None
        for surface, slots in found.items():
            for at in range(0, len(slots), STEP):
                async with exclusive(engine) as pg:
                    await _trim(pg, scope, trim.no, surface, slots[at : at + STEP])
        checkpoint = await write_at_head(engine, alone, scope)
        await scopes.hold(alone, scope)
        await checkpoints.point(alone, scope, base=checkpoint, latest=checkpoint)
        await checkpoints.keep_only(alone, scope, checkpoint)
        await trims.finish(alone, scope, trim.no)
    async with exclusive(engine) as pg:
        await checkpoints.sweep(pg, scope)
        return await trims.last(pg, scope)


Doomed = dict[Surface, list[tuple[bytes, bytes]]]


async def _begun(engine: AsyncEngine, scope: int, as_of_ms: int | None) -> tuple[Trim | None, Doomed]:
    """The run that is under way, or a new one if the policy set now would trim anything; and what it trims."""
    async with reading(engine) as connection:
        pg = await begun(connection)
        last, text = await trims.last(pg, scope), await scopes.retention(pg, scope)
        if last is not None and not last.done:
            return last, await _doomed(pg, scope, read_policy(orjson.loads(last.policy)), last.as_of_ms)
        if text is None:
            return None, {}
        at = await _newest(pg, scope) if as_of_ms is None else as_of_ms
        found = await _doomed(pg, scope, read_policy(orjson.loads(text)), at)
    if not any(found.values()):
        return None, {}
    async with exclusive(engine) as pg:
        return await trims.begin(pg, scope, text, at), found


async def _newest(pg: Driver, scope: int) -> int:
    """The time that ages count from by default: the highest timestamp below the floor (car-sync.md §10.5)."""
    newest = 0
    for surface in LOGS:
        async for row in trims.base_rows(pg, scope, surface):
            newest = max(newest, timestamp(row.record) or 0)
    return newest


async def _doomed(pg: Driver, scope: int, policy: Policy, as_of_ms: int) -> Doomed:
    """The slot and raw op id of each base row that the policy does not keep."""
    found: Doomed = {}
    for surface in LOGS:
        facts = []
        async for row in trims.base_rows(pg, scope, surface):
            fact = fact_of((row.slot, raw_op_id(row.record.op_id)), row.record)
            if fact is not None:
                facts.append(fact)
        found[surface] = doomed(facts, policy.rule(surface.name), as_of_ms)
    return found


async def _trim(pg: Driver, scope: int, trim: int, surface: Surface, step: Sequence[tuple[bytes, bytes]]) -> None:
    await scopes.hold(pg, scope)
    rows = await trims.still(pg, scope, surface, step)
    stubs = {row.slot: stub for row in rows if (stub := stub_of(row.key, row.record))}
    await trims.drop(pg, scope, surface, [row.slot for row in rows if row.slot not in stubs])
    await trims.put_stubs(pg, scope, surface, [(slot, stub.payload) for slot, stub in stubs.items()])
    await trims.count(pg, scope, trim, len(rows) - len(stubs), len(stubs))
    if surface is conversation.SURFACE:
        await _shrink(pg, scope, rows)


async def _shrink(pg: Driver, scope: int, rows: list[BaseRow]) -> None:
    """Tell the list of conversations that these turns are gone."""
    surface = conversation.SURFACE
    gone = Counter(conversation.conversation_id(row.record.value()) for row in rows)
    for name, turns in gone.items():
        first = await _end(pg, scope, name, tail=False)
        if first is None:
            await trims.forget(pg, scope, surface, name)
        else:
            last = await _end(pg, scope, name, tail=True)
            assert last is not None
            await trims.shrink(pg, scope, surface, name, turns, (first, last))


async def _end(pg: Driver, scope: int, name: str, *, tail: bool) -> Record | None:
    """The first or the last turn of a conversation that is no tombstone."""
    place: Place | None = None
    while True:
        page = await histories.page(
            pg, scope, conversation.SURFACE, stream=stream_key(name), limit=ENDS, tail=tail,
            before=place if tail else None, after=None if tail else place,
        )  # fmt: skip
        for record in reversed(page) if tail else page:
            if not conversation.is_tombstone(record.value()):
                return record
        if not page:
            return None
        edge = page[0] if tail else page[-1]
        place = edge.hlc, edge.op_id
