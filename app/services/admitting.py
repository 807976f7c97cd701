"""Transactions under scopes' locks: who may push there, and what becomes of the batches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from app.problems import Problem
from app.services.access import Reach, Right, reach_or_create, require, unbound
from app.services.roster import refuse_hosted
from app.services.turns import Answers, Batch, Turn
from app.settings import Settings
from app.sql import access, devices, pushing
from app.sql.access import Asked, Locked
from app.sql.ops import Appending
from app.sql.transactions import Driver, exclusive, writing
from app.sql.writes import Writes
from foldpoint.admission import Bounds
from foldpoint.slug import slug


@dataclass(frozen=True, slots=True)
class Share:
    """Batches of one scope, each with its own caller."""

    scope: str
    batches: Sequence[Batch]

    def __len__(self) -> int:
        return sum(len(batch) for batch in self.batches)

    def asked(self, batch: Batch) -> Asked:
        return Asked(batch.caller.token_hash, slug(self.scope))


async def admit(engine: AsyncEngine, settings: Settings, share: Share) -> Answers:
    """Admit batches of one scope once its lock is free, and make it if need be; committed when this returns."""
    while True:
        async with exclusive(engine) as pg:
            (answers,) = await _admit(pg, settings, [share], wait=True)
        if answers is not None:
            return answers
        if (problems := await _create(engine, share)) is not None:
            return problems


async def admit_free(engine: AsyncEngine, settings: Settings, shares: Sequence[Share]) -> list[Answers | None]:
    """Admit batches of several scopes in one transaction that waits for nobody; committed when this returns.

    None for a scope that must be admitted by itself: it, or a device of it, is locked or does not exist yet.
    """
    async with exclusive(engine) as pg:
        return await _admit(pg, settings, shares, wait=False)


async def _admit(pg: Driver, settings: Settings, shares: Sequence[Share], *, wait: bool) -> list[Answers | None]:
    asked = dict.fromkeys(share.asked(batch) for share in shares for batch in share.batches)
    locked = await access.lock(pg, list(asked), wait=wait)
    turns = [_begin(share, locked, settings) for share in shares]
    places = dict.fromkeys(place for turn in turns if turn is not None for place in turn.places())
    found = await pushing.load(pg, list(places), wait=wait)
    answers: list[Answers | None] = []
    writes = Writes()
    async with Appending(pg, writes) as appending:
        for i, turn in enumerate(turns):
            if turn is None or any(place not in found for place in turn.places()):
                turns[i] = None
                answers.append(None)
            else:
                answers.append(await turn.take(pg, found, appending))
    taken = [turn for turn in turns if turn is not None]
    for turn in taken:
        await turn.write(pg, writes)
    await writes.send(pg)
    for turn in taken:
        if turn.contact:
            await devices.evict(pg, turn.scope, settings.eviction_horizon_ms)
    return answers


def _begin(share: Share, locked: Mapping[Asked, Locked], settings: Settings) -> Turn | None:
    """None without the scope's lock, or if the scope is not bound yet to the raw name it is given."""
    held = [locked.get(share.asked(batch)) for batch in share.batches]
    known = [one for one in held if one is not None and not unbound(one.grant, share.scope)]
    if len(known) < len(share.batches):
        return None
    first = known[0]
    assert first.grant.scope is not None
    mode: Any = first.grant.mode
    bounds = Bounds.of(mode, first.now_ms, settings.max_clock_skew_ms, first.max_wall_ms)
    batches = [(batch, _reach(batch, one, share.scope)) for batch, one in zip(share.batches, known, strict=True)]
    return Turn(first.grant.scope, slug(share.scope), bounds, batches)


def _reach(batch: Batch, locked: Locked, scope: str) -> Reach | Problem:
    try:
        reach = require(batch.caller, locked.grant, scope, Right.SYNC)
        reach.may_name(batch.device)
        refuse_hosted(batch.device)
    except Problem as problem:
        return problem
    return reach


async def _create(engine: AsyncEngine, share: Share) -> Answers | None:
    """Make the scope for the first admin among the callers; without one, everybody's Problem."""
    problems: Answers = []
    for batch in share.batches:
        async with writing(engine) as connection:
            try:
                await reach_or_create(connection, batch.caller, share.scope, Right.SYNC)
                return None
            except Problem as problem:
                problems.append(problem)
    return problems
