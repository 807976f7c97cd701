"""Transactions under scopes' locks: who may push there, and what becomes of the batches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from sqlalchemy.ext.asyncio import AsyncEngine

from app.problems import Problem
from app.services.access import Reach, Right, reach_or_create, require, unbound
from app.services.keys.vault import Vault
from app.services.pushing.turns import Answers, Batch, Turn
from app.services.roster import refuse_hosted
from app.settings import Settings
from app.sql import access, devices, pushing
from app.sql.access import Asked, Locked
from app.sql.ops import Appending
from app.sql.pushing import Device, Named, Place
from app.sql.transactions import Driver, exclusive, writing
from app.sql.writes import Writes
from foldpoint.admission import Bounds
from foldpoint.slug import slug


@dataclass(frozen=True, slots=True)
class Share:
    """Batches of one scope, each with its own caller."""

    scope: str
    batches: Sequence[Batch]

    def asked(self, batch: Batch) -> Asked:
        return Asked(batch.caller.token_hash, slug(self.scope))

    def named(self, batch: Batch) -> Named:
        return Named(batch.caller.token_hash, slug(self.scope), batch.device)


async def admit(engine: AsyncEngine, settings: Settings, vault: Vault, share: Share) -> Answers:
    """Admit batches of one scope once its lock is free, and make it if need be; committed when this returns."""
    asked = [share.asked(batch) for batch in share.batches]
    while True:
        async with exclusive(engine) as pg:
            locked = await access.lock(pg, list(dict.fromkeys(asked)))
            turn = await _begin(pg, share, [locked.get(one) for one in asked], settings, vault)
            if turn is not None:
                found = await pushing.load(pg, list(dict.fromkeys(turn.places())))
                return (await _take(pg, settings, [turn], found))[0]
        if (problems := await _create(engine, share)) is not None:
            return problems


async def admit_free(
    engine: AsyncEngine, settings: Settings, vault: Vault, shares: Sequence[Share]
) -> list[Answers | None]:
    """Admit batches of several scopes in one transaction that waits for nobody; committed when this returns.

    None for a scope that must be admitted by itself: it, or a device of it, is locked or does not exist yet.
    """
    named = [[share.named(batch) for batch in share.batches] for share in shares]
    async with exclusive(engine) as pg:
        free = await pushing.lock_free(pg, list(dict.fromkeys(chain.from_iterable(named))))
        locked = {one: found for one, (found, _) in free.items()}
        found = {Place(scope.number, one.device): device for one, (scope, device) in free.items()}
        turns = [
            await _begin(pg, share, [locked.get(one) for one in own], settings, vault)
            for share, own in zip(shares, named, strict=True)
        ]
        answers = iter(await _take(pg, settings, [turn for turn in turns if turn is not None], found))
        return [None if turn is None else next(answers) for turn in turns]


async def _begin(
    pg: Driver, share: Share, locked: Sequence[Locked | None], settings: Settings, vault: Vault
) -> Turn | None:
    """None without the scope's lock, or if the scope is not bound yet to the raw name it is given."""
    known = [one for one in locked if one is not None and not unbound(one.grant, share.scope)]
    if len(known) < len(share.batches):
        return None
    first = known[0]
    bounds = Bounds.of(first.grant.mode, first.now_ms, settings.max_clock_skew_ms, first.max_wall_ms)
    batches = [(batch, _reach(batch, one, share.scope)) for batch, one in zip(share.batches, known, strict=True)]
    keyring = None
    if first.grant.key_state == "unlocked":
        try:
            keyring = await vault.keyring(pg, first.number, first.grant.key_generation)
        except Problem as problem:
            batches = [(batch, problem if isinstance(reach, Reach) else reach) for batch, reach in batches]
    else:
        vault.forget(first.number)
    return Turn(first.number, slug(share.scope), bounds, batches, keyring)


async def _take(pg: Driver, settings: Settings, turns: Sequence[Turn], found: Mapping[Place, Device]) -> list[Answers]:
    writes = Writes()
    async with Appending(pg, writes) as appending:
        answers = [await turn.take(pg, found, appending) for turn in turns]
    for turn in turns:
        await turn.write(pg, writes)
    await writes.send(pg)
    for turn in turns:
        if turn.contact:
            await devices.evict(pg, turn.scope, settings.eviction_horizon_ms)
    return answers


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
