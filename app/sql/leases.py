"""The durable lease register, one row per agent slug, and what a grant must pass."""

from datetime import datetime
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Row, Select, func, or_, select, true
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.sql.intents import COMMITTED
from app.sql.keys import stream_key
from app.sql.tables import agent, claim_reset, intent, lease, run_seen, server, token
from app.sql.tables import scope as scope_
from foldpoint.admission import I64_MAX
from foldpoint.lease import Register
from foldpoint.surfaces.intent import epoch

#: Payloads that are read together.
READ_TOGETHER = 1_000


async def lock(connection: AsyncConnection, scope: int, slug: str, spelling: str) -> Register:
    """The register of an agent, under its row's lock; `spelling` is how the caller writes the agent."""
    key = stream_key(slug)
    await connection.execute(insert(lease).values(scope=scope, agent=key).on_conflict_do_nothing())
    row = (await connection.execute(_of(scope, key).with_for_update())).one()
    return _register(row, spelling)


async def read(connection: AsyncConnection, scope: int, slug: str, spelling: str) -> Register:
    row = (await connection.execute(_of(scope, stream_key(slug)))).one_or_none()
    return Register(spelling) if row is None else _register(row, spelling)


def _of(scope: int, key: bytes) -> Select[Any]:
    columns = lease.c.epoch, lease.c.holder, lease.c.expires_at_ms
    return select(*columns).where(lease.c.scope == scope, lease.c.agent == key)


def _register(row: Row[Any], spelling: str) -> Register:
    return Register(spelling, row.epoch, None if row.holder is None else row.holder.decode(), row.expires_at_ms)


async def put(connection: AsyncConnection, scope: int, slug: str, register: Register) -> None:
    holder = None if register.holder is None else register.holder.encode()
    changed = lease.update().where(lease.c.scope == scope, lease.c.agent == stream_key(slug))
    await connection.execute(changed.values(epoch=register.epoch, holder=holder, expires_at_ms=register.expires_at_ms))


class Floor(NamedTuple):
    """The epoch that a grant must pass, and the agent whose fence that is; None if it is nobody's.

    While a scope is being unlocked it is not `final`: fences are still to come.
    """

    epoch: int
    claimed_by: str | None
    final: bool = True

    @property
    def leaves_room(self) -> bool:
        return self.epoch < I64_MAX


async def floor(connection: AsyncConnection, scope: int, slug: str) -> Floor:
    """The highest fence of the agents with this slug, claims that were let go apart, or the database's floor."""
    key = stream_key(slug)
    resets = select(func.max(claim_reset.c.claim).label("claim"), func.max(claim_reset.c.floor).label("floor")).where(
        claim_reset.c.scope == scope, claim_reset.c.agent == key
    )
    let_go = (await connection.execute(resets)).one()
    minded = or_(agent.c.fencing_epoch < I64_MAX, agent.c.fencing_epoch > (let_go.claim or 0))
    fences = (
        select(agent.c.fencing_epoch, agent.c.name)
        .where(agent.c.scope == scope, agent.c.slug_key == key, minded)
        .order_by(agent.c.fencing_epoch.desc())
        .limit(1)
        .subquery()
    )
    known = scope_.outerjoin(fences, true())
    asked = select(scope_.c.key_state, fences.c.fencing_epoch, fences.c.name).select_from(known)
    highest = (await connection.execute(asked.where(scope_.c.id == scope))).one()
    final = highest.key_state != "unlocking"
    least = max((await connection.execute(select(server.c.lease_floor))).scalar_one(), let_go.floor or 0)
    if highest.fencing_epoch is None or highest.fencing_epoch <= least:
        return Floor(least, None, final)
    return Floor(int(highest.fencing_epoch), highest.name.decode(), final)


class Reset(NamedTuple):
    """A claim that was let go; `token` is the number of the token that did it, None for the one of the settings."""

    claim: int
    claimed_by: str
    reset_at: datetime
    token: int | None


async def let_go(connection: AsyncConnection, scope: int, slug: str, claim: Floor, token_hash: bytes) -> None:
    """Note that no grant minds a claim any more, and the highest epoch with room that is kept of these agents."""
    assert claim.claimed_by is not None
    key = stream_key(slug)
    agents = select(agent.c.key).where(agent.c.scope == scope, agent.c.slug_key == key)
    highest = select(func.max(run_seen.c.epoch)).where(
        run_seen.c.scope == scope, run_seen.c.agent.in_(agents), run_seen.c.epoch < I64_MAX
    )
    seen = (await connection.execute(highest)).scalar_one() or 0
    floor = max(int(seen), await _highest_committed(connection, scope, agents))
    by = select(token.c.id).where(token.c.hash == token_hash)
    row = {"claim": claim.epoch, "claimed_by": claim.claimed_by.encode(), "floor": floor}
    new = insert(claim_reset).values(scope=scope, agent=key, token=by.scalar_subquery(), **row)
    await connection.execute(new)


async def _highest_committed(connection: AsyncConnection, scope: int, agents: Select[Any]) -> int:
    """The highest epoch with room above it in the oracle's records of these agents, which run_seen has not; or 0.

    The epoch is read out of each payload as the fold reads it, of which there may be a hundred thousand.
    """
    of_agents = intent.c.scope == scope, intent.c.agent.in_(agents), intent.c.view == COMMITTED
    highest = 0
    async with connection.stream(select(intent.c.payload).where(*of_agents)) as rows:
        async for part in rows.scalars().partitions(READ_TOGETHER):
            epochs = (epoch(orjson.loads(payload)) for payload in part)
            highest = max([highest, *(found for found in epochs if found < I64_MAX)])
    return highest


async def resets(connection: AsyncConnection, scope: int, slug: str) -> list[Reset]:
    """The claims of these agents that were ever let go; each is above those before it."""
    columns = claim_reset.c.claim, claim_reset.c.claimed_by, claim_reset.c.reset_at, claim_reset.c.token
    of_agent = claim_reset.c.scope == scope, claim_reset.c.agent == stream_key(slug)
    rows = await connection.execute(select(*columns).where(*of_agent).order_by(claim_reset.c.claim))
    return [Reset(int(row.claim), row.claimed_by.decode(), row.reset_at, row.token) for row in rows]
