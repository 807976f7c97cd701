"""Bearer tokens, as hashes."""

from typing import NamedTuple

from sqlalchemy import RowMapping, exists, func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.sql.tables import scope, token

FIRST_ADMIN_LOCK = 0x61646D69


class NewToken(NamedTuple):
    role: str
    scope: int | None = None
    device: bytes | None = None
    account: str | None = None
    granter: bool = False


class Grants(NamedTuple):
    """What a token may publish beyond its role: `account`'s org public key, key wraps."""

    role: str
    account: str | None = None
    granter: bool = False


async def add(connection: AsyncConnection, new: NewToken, digest: bytes) -> int:
    added = insert(token).values(**new._asdict(), hash=digest).returning(token.c.id)
    return int((await connection.execute(added)).scalar_one())


async def grants(connection: AsyncConnection, digest: bytes) -> Grants | None:
    """None for an unknown or revoked token."""
    columns = token.c.role, token.c.account, token.c.granter
    standing = select(*columns).where(token.c.hash == digest, token.c.revoked_at.is_(None))
    row = (await connection.execute(standing)).one_or_none()
    return None if row is None else Grants(*row)


async def every(connection: AsyncConnection) -> list[RowMapping]:
    """All tokens, revoked ones too, without their hashes."""
    columns = [column for column in token.c if column.name not in ("hash", "scope")]
    listed = select(*columns, scope.c.slug, scope.c.name).outerjoin(scope).order_by(token.c.id)
    return list((await connection.execute(listed)).mappings())


async def revoke(connection: AsyncConnection, number: int) -> bool:
    """Whether there is such a token. The time of the first call stays."""
    revoked_at = func.coalesce(token.c.revoked_at, func.now())
    done = update(token).where(token.c.id == number).values(revoked_at=revoked_at).returning(token.c.id)
    return (await connection.execute(done)).one_or_none() is not None


async def lacks_admin(connection: AsyncConnection) -> bool:
    """Servers that start together ask one after another, each until the end of its transaction."""
    await connection.execute(text("select pg_advisory_xact_lock(:key)"), {"key": FIRST_ADMIN_LOCK})
    admin = exists().where(token.c.role == "admin", token.c.revoked_at.is_(None))
    return not (await connection.execute(select(admin))).scalar_one()
