"""Scopes by name. The first raw name given for a slug binds to it."""

from typing import Any

import orjson
from sqlalchemy import Row, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.sql.tables import scope
from app.sql.transactions import Driver, connected
from foldpoint.slug import slug


class ScopeNameTaken(ValueError):
    def __init__(self, name: str, slug: str, bound: str) -> None:
        super().__init__(f"the scope {name!r} would travel as {slug!r}, which already stands for {bound!r}")
        self.name, self.slug, self.bound = name, slug, bound


async def ensure_scope(connection: AsyncConnection, name: str) -> int:
    """The scope's number, after making it or binding its raw name if need be. Raises ScopeNameTaken."""
    on_wire = slug(name)
    bind = None if name == on_wire else name.encode()
    named = select(scope.c.id, scope.c.name).where(scope.c.slug == on_wire)
    new = insert(scope).values(slug=on_wire, name=bind).on_conflict_do_nothing(index_elements=[scope.c.slug])
    unbound = update(scope).values(name=bind).where(scope.c.slug == on_wire, scope.c.name.is_(None))
    while True:
        found = (await connection.execute(named)).one_or_none()
        if found is None:
            await connection.execute(new)
        elif bind is None or found.name == bind:
            return int(found.id)
        elif found.name is None:
            await connection.execute(unbound)
        else:
            raise ScopeNameTaken(name, on_wire, found.name.decode(errors="backslashreplace"))


#: The class of the advisory locks under which one process at a time does long work on a scope as a whole.
WHOLE = 0x6670_0001


async def hold(pg: Driver, number: int) -> str | None:
    """Take the scope's lock until the transaction ends, that row alone; the scope's mode.

    A process that is frozen while it holds it loses it after a while, whatever else has no time-out.
    """
    await pg.execute("set local idle_in_transaction_session_timeout = '60s'")
    mode: str | None = await pg.fetchval("select mode from scope where id = $1 for no key update", number)
    return mode


async def mode(pg: Driver, number: int) -> str | None:
    """Whether the scope is plain or sealed; None before its first op."""
    found: str | None = await pg.fetchval("select mode from scope where id = $1", number)
    return found


async def work_alone(pg: Driver, number: int) -> None:
    """Wait until nobody else makes, judges or trims a checkpoint of this scope; held until the transaction ends.

    Nobody knows how long that is, so no time-out ends the wait.
    """
    await pg.execute("set local lock_timeout = 0")
    await pg.execute("select pg_advisory_xact_lock($1, $2)", WHOLE, number)


async def may_work_alone(pg: Driver, number: int) -> bool:
    """As `work_alone`, without waiting; false if somebody else does."""
    return bool(await pg.fetchval("select pg_try_advisory_xact_lock($1, $2)", WHOLE, number))


async def sealed_ops(pg: Driver, number: int) -> int:
    """How many of the scope's ops are envelopes that are not opened."""
    return int(await pg.fetchval("select sealed_ops from scope where id = $1", number))


async def put_problem(pg: Driver, number: int, problem: dict[str, Any]) -> None:
    """Remember the last checkpoint that was refused, for an admin to see on the roster."""
    refused = "update scope set problem = $2, problem_at = clock_timestamp() where id = $1"
    await pg.execute(refused, number, orjson.dumps(problem).decode())


async def retention(pg: Driver, number: int) -> str | None:
    """The policy that an admin set, as JSON text."""
    policy: str | None = await pg.fetchval("select retention from scope where id = $1", number)
    return policy


async def put_retention(pg: Driver, number: int, policy: str | None) -> None:
    await pg.execute("update scope set retention = $2 where id = $1", number, policy)


async def row(connection: AsyncConnection, number: int) -> Row[Any]:
    return (await connection.execute(select(scope).where(scope.c.id == number))).one()


async def listed(engine: AsyncEngine, name: str | None = None) -> list[tuple[int, str]]:
    """Scopes by number with the name they go by: all, or the one of a name or slug."""
    query = select(scope.c.id, scope.c.slug, scope.c.name).order_by(scope.c.slug)
    async with connected(engine) as connection:
        rows = (await connection.execute(query if name is None else query.where(scope.c.slug == slug(name)))).all()
    return [(row.id, row.slug if row.name is None else row.name.decode()) for row in rows]
