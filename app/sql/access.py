"""Who a token is, what scope is meant: one statement, in the transaction of the work it is for."""

from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

from sqlalchemy import LargeBinary, Text, bindparam, select, true
from sqlalchemy.ext.asyncio import AsyncConnection

from app.sql.tables import scope, server, token
from app.sql.transactions import Driver, Row
from app.sql.writes import Writes
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
    scope.c.key_state,
    scope.c.key_generation,
    scope.c.closed_intents,
).select_from(_asked.outerjoin(_token, true()).outerjoin(scope, scope.c.slug == _asked.c.slug))

#: The same for pushes, which take the scopes' locks: one writer at a time. It is for each row of `a(hash, slug)`.
#: The lateral look-ups keep each key an index probe, whatever the statistics say.
GRANTED = """
(select epoch from server) as epoch, t.role, t.scope as reach, t.device as bound, s.id as scope, s.name, s.mode,
s.key_state, s.key_generation, s.max_wall_ms, (extract(epoch from clock_timestamp()) * 1000)::bigint as now_ms
"""
LOCKING = """
cross join lateral (
    select id, name, mode, key_state, key_generation, max_wall_ms
    from scope where slug = a.slug limit 1 for no key update
) s
left join lateral (
    select role, scope, device from token where hash = a.hash and revoked_at is null limit 1
) t on true
"""
#: No other row is locked, and what else is read was read before the wait.
LOCK = f"select a.i, {GRANTED} from unnest($1::bytea[], $2::text[]) with ordinality as a(hash, slug, i) {LOCKING}"


#: Of a sealed scope whose keys the server has; only of an unlocked one all ops are folded.
KeyState = Literal["unlocking", "unlocked"]


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
    key_state: KeyState | None = None
    key_generation: int = 0
    closed_intents: int = 0


async def look_up(connection: AsyncConnection, token_hash: bytes, slug: str) -> Grant:
    row = (await connection.execute(ACCESS, {"hash": token_hash, "slug": slug})).one()
    return Grant._make(row)


STANDING = "select hash from token where hash = any($1::bytea[]) and revoked_at is null"


async def standing(pg: Driver, hashes: Collection[bytes]) -> set[bytes]:
    """Those of these token hashes that are known and not revoked."""
    return {row["hash"] for row in await pg.fetch(STANDING, list(hashes))}


class Locked(NamedTuple):
    """A scope under its lock, and who asked for it. `now_ms` is the database clock."""

    grant: Grant
    max_wall_ms: int
    now_ms: int

    @property
    def number(self) -> int:
        assert self.grant.scope is not None
        return self.grant.scope


class Asked(NamedTuple):
    """A token, as its hash, and the slug of the scope it is to be used on."""

    token_hash: bytes
    slug: str


async def lock(pg: Driver, asked: Sequence[Asked]) -> dict[Asked, Locked]:
    """Wait for the scopes' locks, which last until the transaction ends; without the scopes that do not exist.

    Whoever holds the lock of one scope may not wait for another's.
    """
    return {asked[row["i"] - 1]: locked_of(row) for row in await pg.fetch(LOCK, *zip(*asked, strict=True))}


def locked_of(row: Row) -> Locked:
    """What a row with the columns of `GRANTED` says."""
    names = ("epoch", "role", "reach", "bound", "scope", "name", "mode", "key_state", "key_generation")
    return Locked(Grant(**{name: row[name] for name in names}), row["max_wall_ms"], row["now_ms"])


class Settled(NamedTuple):
    """What a push added to a scope, as counts; the first op fixes the mode."""

    scope: int
    slug: str
    ops: int
    sealed_ops: int
    closed_intents: int
    max_wall_ms: int
    mode: str | None


#: An upsert though each row is there: its look-up is an index probe, whatever the statistics say.
SETTLE = """
insert into scope as s (id, slug, ops, accepted, sealed_ops, closed_intents, max_wall_ms, mode)
select id, slug, ops, ops, sealed_ops, closed_intents, max_wall_ms, mode
from unnest($1::int[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[])
    as w(id, slug, ops, sealed_ops, closed_intents, max_wall_ms, mode)
on conflict (id) do update set
    ops = s.ops + excluded.ops, accepted = s.accepted + excluded.accepted,
    sealed_ops = s.sealed_ops + excluded.sealed_ops, closed_intents = s.closed_intents + excluded.closed_intents,
    max_wall_ms = greatest(s.max_wall_ms, excluded.max_wall_ms), mode = coalesce(s.mode, excluded.mode)
"""


def settle(writes: Writes, settled: Settled) -> None:
    """Count what a push added."""
    writes.add(SETTLE, [settled])
