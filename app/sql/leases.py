"""The durable lease register, one row per agent slug."""

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.sql.keys import stream_key
from app.sql.tables import agent, lease, server
from foldpoint.lease import Register


async def lock(connection: AsyncConnection, scope: int, slug: str, spelling: str) -> Register:
    """The register of an agent, under its row's lock; `spelling` is how the caller writes the agent."""
    key = stream_key(slug)
    new = insert(lease).values(scope=scope, agent=key, slug=slug.encode()).on_conflict_do_nothing()
    await connection.execute(new)
    row = (await connection.execute(_of(scope, key).with_for_update())).one()
    return _register(row, spelling)


async def read(connection: AsyncConnection, scope: int, slug: str, spelling: str) -> Register:
    row = (await connection.execute(_of(scope, stream_key(slug)))).one_or_none()
    return Register(spelling) if row is None else _register(row, spelling)


def _of(scope: int, key: bytes):  # type: ignore[no-untyped-def]
    columns = lease.c.epoch, lease.c.holder, lease.c.expires_at_ms
    return select(*columns).where(lease.c.scope == scope, lease.c.agent == key)


def _register(row, spelling: str) -> Register:  # type: ignore[no-untyped-def]
    return Register(spelling, row.epoch, None if row.holder is None else row.holder.decode(), row.expires_at_ms)


async def put(connection: AsyncConnection, scope: int, slug: str, register: Register) -> None:
    holder = None if register.holder is None else register.holder.encode()
    changed = lease.update().where(lease.c.scope == scope, lease.c.agent == stream_key(slug))
    await connection.execute(changed.values(epoch=register.epoch, holder=holder, expires_at_ms=register.expires_at_ms))


async def floor(connection: AsyncConnection, scope: int, slug: str) -> tuple[int, str | None]:
    """The epoch that a grant must pass: the highest fence of the agents with this slug, or the database's floor.

    With it the name of the agent whose fence that is.
    """
    fences = (
        select(agent.c.fencing_epoch, agent.c.name)
        .where(agent.c.scope == scope, agent.c.slug_key == stream_key(slug))
        .order_by(agent.c.fencing_epoch.desc())
        .limit(1)
    )
    highest = (await connection.execute(fences)).one_or_none()
    least = (await connection.execute(select(server.c.lease_floor))).scalar_one()
    if highest is None or highest.fencing_epoch <= least:
        return least, None
    return int(highest.fencing_epoch), highest.name.decode()
