"""Who a token is, what scope is meant: one statement, in the transaction of the work it is for."""

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import LargeBinary, Text, bindparam, select, true
from sqlalchemy.ext.asyncio import AsyncConnection

from app.sql.tables import scope, server, token
from app.sql.transactions import Driver
from foldpoint.admission import Mode

_asked = select(bindparam("slug", type_=Text).label("slug")).cte("asked")
_token = (
    select(token.c.role, token.c.scope, token.c.device, token.c.account, token.c.granter)
    .where(token.c.hash == bindparam("hash", type_=LargeBinary), token.c.revoked_at.is_(None))
    .subquery("grant")
)
ACCESS = select(
    select(server.c.epoch).scalar_subquery().label("epoch"),
    _token.c.role,
    _token.c.scope.label("reach"),
    _token.c.device.label("bound"),
    scope.c.id.label("scope"),
    scope.c.name,
    scope.c.mode,
    scope.c.closed_intents,
).select_from(_asked.outerjoin(_token, true()).outerjoin(scope, scope.c.slug == _asked.c.slug))

#: The same for a push, which takes the scope's lock: one writer at a time, and no other row is locked.
LOCK = """
select (select epoch from server) as epoch, t.role, t.scope as reach, t.device as bound, s.id as scope, s.name, s.mode,
       s.max_wall_ms, (extract(epoch from clock_timestamp()) * 1000)::bigint as now_ms
from (select id, name, mode, max_wall_ms from scope where slug = $2 for no key update) s
left join token t on t.hash = $1 and t.revoked_at is null
"""


class Grant(NamedTuple):
    """What is known of a caller and of the scope it names; None where there is no such row.

    `epoch` is the server epoch; `role` is None for an unknown or revoked token; `reach` is the token's scope, None for
    an admin; `bound` is the device a token is bound to.
    """

    epoch: str
    role: str | None
    reach: int | None
    bound: bytes | None
    scope: int | None
    name: bytes | None
    mode: Mode | None
    closed_intents: int = 0


async def look_up(connection: AsyncConnection, token_hash: bytes, slug: str) -> Grant:
    row = (await connection.execute(ACCESS, {"hash": token_hash, "slug": slug})).one()
    return Grant(*row)


STANDING = "select hash from token where hash = any($1::bytea[]) and revoked_at is null"


async def standing(pg: Driver, hashes: Collection[bytes]) -> set[bytes]:
    """Those of these token hashes that are known and not revoked."""
    return {row["hash"] for row in await pg.fetch(STANDING, list(hashes))}


class Locked(NamedTuple):
    """A scope under its lock, and who asked for it. `now_ms` is the database clock."""

    grant: Grant
    max_wall_ms: int
    now_ms: int


async def lock(pg: Driver, token_hash: bytes, slug: str) -> Locked | None:
    """Take the scope's lock until the transaction ends; None if there is no such scope."""
    row = await pg.fetchrow(LOCK, token_hash, slug)
    if row is None:
        return None
    names = ("epoch", "role", "reach", "bound", "scope", "name", "mode")
    return Locked(Grant(*(row[name] for name in names)), row["max_wall_ms"], row["now_ms"])


SETTLE = """
update scope set ops = ops + $2, accepted = accepted + $2, sealed_ops = sealed_ops + $3,
    closed_intents = closed_intents + $4, max_wall_ms = greatest(max_wall_ms, $5), mode = coalesce(mode, $6)
where id = $1
"""


async def settle(
    pg: Driver, scope: int, *, ops: int, sealed: int, closed_intents: int, max_wall_ms: int, mode: str | None
) -> None:
    """Count what a push added; the first op fixes the scope's mode."""
    await pg.execute(SETTLE, scope, ops, sealed, closed_intents, max_wall_ms, mode)
