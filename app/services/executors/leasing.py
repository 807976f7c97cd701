"""Leases by the database clock, read after the row's lock is held (server.md §6).

A grant passes every epoch that could be in use: those of the register, the fences of the fold, the database's floor.
An intent may claim an epoch with no room above it, and the fold forgets no intent: an admin then lets the claim go.
From that on

- a grant minds that claim no more, and no smaller one without room; all other fences, what was kept of intents below
  the claim when it was let go (pending and failed ones, the record of each committed run), and the register as ever:
  no epoch that was granted is granted again;
- the fence in the fold stays where the claim put it, on every device. Pendings at granted epochs are below it, so
  `/intent` shows none of them; `committed` counts at any epoch, and `run_seen` has them all, so that the oracle and the
  status of a run answer as before;
- the dispatch fence compares with the register alone (car-sync.md §13.3), and so goes on unchanged.

A higher claim, made later, must be let go by itself. Each is noted with the token that let it go.
"""

from typing import Any, NamedTuple

from sqlalchemy.ext.asyncio import AsyncConnection

from app.problems import Problem
from app.services.access import Caller
from app.services.keys.vault import unlocking
from app.sql import leases
from app.sql.leases import Floor
from app.sql.transactions import database_ms, driver
from foldpoint.admission import I64_MAX
from foldpoint.lease import Held, Lease, Lost, Register
from foldpoint.slug import slug

MAX_TTL_MS = 24 * 3_600_000


class Timed(NamedTuple):
    """A lease, or None, as the database clock saw it."""

    lease: Lease | None
    now_ms: int

    @property
    def remaining_ms(self) -> int:
        return max(0, self.lease.expires_at_ms - self.now_ms) if self.lease else 0


class HeldNow(NamedTuple):
    """Someone holds an unexpired lease."""

    lease: Lease
    remaining_ms: int


async def acquire(connection: AsyncConnection, scope: int, agent: str, device: str, ttl_ms: int) -> Timed | HeldNow:
    """Grant the next epoch, above every fence of the agent's slug. Raises epoch_exhausted, and sealed_scope as 503."""
    register = await leases.lock(await driver(connection), scope, slug(agent), agent)
    now_ms = await database_ms(connection)
    floor = await _floor(connection, scope, agent)
    granted = register.acquire(device, min(ttl_ms, MAX_TTL_MS), now_ms, floor.epoch)
    if isinstance(granted, Held):
        return HeldNow(granted.lease, granted.lease.expires_at_ms - now_ms)
    if granted.epoch > I64_MAX:
        raise _exhausted(agent, register, floor)
    return await _put(connection, scope, granted, now_ms)


async def _floor(connection: AsyncConnection, scope: int, agent: str) -> Floor:
    """Raises sealed_scope, as 503, while fences are still to come out of sealed ops."""
    floor = await leases.floor(await driver(connection), scope, slug(agent))
    if not floor.final:
        raise unlocking()
    return floor


def _exhausted(agent: str, register: Register, floor: Floor) -> Problem:
    if register.epoch >= I64_MAX:
        facts = {"agent_id": agent, "granted_epoch": register.epoch, "advice": "Take another agent id."}
        return Problem("epoch_exhausted", "the last epoch there is was granted", facts)
    facts = {"agent_id": agent, "claimed_epoch": floor.epoch, "claimed_by": floor.claimed_by}
    return Problem("epoch_exhausted", "an intent claims an epoch above which there is no room", facts)


async def claims(connection: AsyncConnection, scope: int, agent: str) -> dict[str, Any]:
    """The claim that leaves no room for a grant, null if none does, and those that were let go."""
    floor = await _floor(connection, scope, agent)
    claim = None if floor.leaves_room else {"epoch": floor.epoch, "claimed_by": floor.claimed_by}
    resets = await leases.resets(connection, scope, slug(agent))
    return {"agent_id": agent, "claim": claim, "let_go": [reset._asdict() for reset in resets]}


async def let_claim_go(connection: AsyncConnection, scope: int, agent: str, caller: Caller) -> None:
    """Let the claim go that leaves no room for a grant, if one does. Raises epoch_exhausted if that cannot help."""
    register = await leases.lock(await driver(connection), scope, slug(agent), agent)
    floor = await _floor(connection, scope, agent)
    if register.epoch >= I64_MAX:
        raise _exhausted(agent, register, floor)
    if not floor.leaves_room:
        await leases.let_go(connection, scope, slug(agent), floor, caller.token_hash)


async def renew(
    connection: AsyncConnection, scope: int, agent: str, device: str, epoch: int, ttl_ms: int
) -> Timed | Lost:
    register = await leases.lock(await driver(connection), scope, slug(agent), agent)
    now_ms = await database_ms(connection)
    renewed = register.renew(device, epoch, min(ttl_ms, MAX_TTL_MS), now_ms)
    return renewed if isinstance(renewed, Lost) else await _put(connection, scope, renewed, now_ms)


async def release(connection: AsyncConnection, scope: int, agent: str, device: str, epoch: int) -> Timed | Lost:
    register = await leases.lock(await driver(connection), scope, slug(agent), agent)
    released = register.release(device, epoch)
    if isinstance(released, Lost):
        return released
    return await _put(connection, scope, released, await database_ms(connection))


async def current(connection: AsyncConnection, scope: int, agent: str) -> Timed:
    """The recorded lease, an expired one too."""
    register = await leases.read(connection, scope, slug(agent), agent)
    return Timed(register.current, await database_ms(connection))


async def _put(connection: AsyncConnection, scope: int, register: Register, now_ms: int) -> Timed:
    await leases.put(connection, scope, slug(register.agent_id), register)
    return Timed(register.current, now_ms)
