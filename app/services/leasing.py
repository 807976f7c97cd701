"""Leases by the database clock, read after the row's lock is held (server.md §6)."""

from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncConnection

from app.problems import Problem
from app.sql import leases
from app.sql.transactions import database_ms
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

    timed: Timed


async def acquire(connection: AsyncConnection, scope: int, agent: str, device: str, ttl_ms: int) -> Timed | HeldNow:
    """Grant the next epoch, above every fence of the agent's slug. Raises epoch_exhausted."""
    register = await leases.lock(connection, scope, slug(agent), agent)
    now_ms = await database_ms(connection)
    floor, claimed_by = await leases.floor(connection, scope, slug(agent))
    granted = register.acquire(device, min(ttl_ms, MAX_TTL_MS), now_ms, floor)
    if isinstance(granted, Held):
        return HeldNow(Timed(granted.lease, now_ms))
    if granted.epoch > I64_MAX:
        facts = {"agent_id": agent, "claimed_epoch": floor, "claimed_by": claimed_by}
        raise Problem("epoch_exhausted", "an intent claims the last epoch there is; an admin can reset it", facts)
    return await _put(connection, scope, granted, now_ms)


async def renew(
    connection: AsyncConnection, scope: int, agent: str, device: str, epoch: int, ttl_ms: int
) -> Timed | Lost:
    register = await leases.lock(connection, scope, slug(agent), agent)
    now_ms = await database_ms(connection)
    renewed = register.renew(device, epoch, min(ttl_ms, MAX_TTL_MS), now_ms)
    return renewed if isinstance(renewed, Lost) else await _put(connection, scope, renewed, now_ms)


async def release(connection: AsyncConnection, scope: int, agent: str, device: str, epoch: int) -> Timed | Lost:
    register = await leases.lock(connection, scope, slug(agent), agent)
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
