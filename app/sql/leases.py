"""The durable lease register, one row per agent slug, and what a grant must pass."""

from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Select, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.sql.intents import COMMITTED
from app.sql.keys import stream_key
from app.sql.tables import agent, claim_reset, intent, lease, run_seen, token
from app.sql.transactions import Driver
from foldpoint.admission import I64_MAX
from foldpoint.lease import Register
from foldpoint.surfaces.intent import epoch

#: Payloads that are read together.
READ_TOGETHER = 1_000


BEGIN = "insert into lease (scope, agent) values ($1, $2) on conflict do nothing"
LOCK = "select epoch, holder, expires_at_ms from lease where scope = $1 and agent = $2 for update"


async def lock(pg: Driver, scope: int, slug: str, spelling: str) -> Register:
    """The register of an agent, under its row's lock; `spelling` is how the caller writes the agent."""
    key = stream_key(slug)
    await pg.execute(BEGIN, scope, key)
    row = await pg.fetchrow(LOCK, scope, key)
    assert row is not None
    return _register(row["epoch"], row["holder"], row["expires_at_ms"], spelling)


async def read(connection: AsyncConnection, scope: int, slug: str, spelling: str) -> Register:
    columns = lease.c.epoch, lease.c.holder, lease.c.expires_at_ms
    asked = select(*columns).where(lease.c.scope == scope, lease.c.agent == stream_key(slug))
    row = (await connection.execute(asked)).one_or_none()
    return Register(spelling) if row is None else _register(row.epoch, row.holder, row.expires_at_ms, spelling)


def _register(epoch: int, holder: bytes | None, expires_at_ms: int, spelling: str) -> Register:
    return Register(spelling, epoch, None if holder is None else holder.decode(), expires_at_ms)


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


FLOOR = """
with let_go as (select max(claim) as claim, coalesce(max(floor), 0) as floor
                from claim_reset where scope = $1 and agent = $2)
select s.key_state, greatest(v.lease_floor, l.floor) as least, f.fencing_epoch, f.name
from scope s cross join server v cross join let_go l left join lateral (
    select fencing_epoch, name from agent
    where scope = $1 and slug_key = $2 and (fencing_epoch < $3 or fencing_epoch > coalesce(l.claim, 0))
    order by fencing_epoch desc limit 1
) f on true
where s.id = $1
"""


async def floor(pg: Driver, scope: int, slug: str) -> Floor:
    """The highest fence of the agents with this slug, claims that were let go apart, or the database's floor."""
    found = await pg.fetchrow(FLOOR, scope, stream_key(slug), Decimal(I64_MAX))
    assert found is not None
    final, fence = found["key_state"] != "unlocking", found["fencing_epoch"]
    if fence is None or fence <= found["least"]:
        return Floor(found["least"], None, final)
    return Floor(int(fence), found["name"].decode(), final)


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
