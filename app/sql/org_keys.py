"""The org-key directory: wraps by recipient and epoch, public keys by account (car-sync.md §13b)."""

from typing import NamedTuple

from sqlalchemy import select, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.sql.tables import org_key_wrap, org_public_key
from foldpoint.slug import slug

#: Wraps that are read at once.
PAGE = 100


class Wrap(NamedTuple):
    """A wrap's place, and its JSON text as it was published."""

    epoch: int
    recipient: str
    body: bytes


async def put_wrap(connection: AsyncConnection, scope: int, wrap: Wrap) -> None:
    """Keep a wrap; an earlier one for this recipient at this epoch is replaced."""
    place = {"slug": slug(wrap.recipient), "epoch": wrap.epoch, "recipient": wrap.recipient.encode()}
    new = insert(org_key_wrap).values(scope=scope, **place, body=wrap.body)
    replaced = new.on_conflict_do_update(constraint=org_key_wrap.primary_key, set_={"body": new.excluded.body})
    await connection.execute(replaced)


async def wraps(connection: AsyncConnection, scope: int, recipient: str, after: Wrap | None = None) -> list[Wrap]:
    """The next wraps for whoever has this slug, newest epoch first; fewer than PAGE are the last."""
    columns = org_key_wrap.c.epoch, org_key_wrap.c.recipient, org_key_wrap.c.body
    query = select(*columns).where(org_key_wrap.c.scope == scope, org_key_wrap.c.slug == recipient)
    place = org_key_wrap.c.epoch, org_key_wrap.c.recipient
    if after is not None:
        last = tuple_(after.epoch, after.recipient.encode(), types=[column.type for column in place])
        query = query.where(tuple_(*place) < last)
    rows = await connection.execute(query.order_by(*(column.desc() for column in place)).limit(PAGE))
    return [Wrap(int(row.epoch), row.recipient.decode(), row.body) for row in rows]


class PublicKey(NamedTuple):
    account: str
    public_hex: str


async def put_public_key(connection: AsyncConnection, scope: int, key: PublicKey) -> None:
    """Keep an account's key in place of the one before."""
    new = insert(org_public_key).values(scope=scope, account=key.account, public_hex=key.public_hex.encode())
    changed = {"public_hex": new.excluded.public_hex}
    await connection.execute(new.on_conflict_do_update(constraint=org_public_key.primary_key, set_=changed))


async def public_keys(connection: AsyncConnection, scope: int) -> list[PublicKey]:
    """Every account's key, by account in byte order."""
    columns = org_public_key.c.account, org_public_key.c.public_hex
    listed = select(*columns).where(org_public_key.c.scope == scope).order_by(org_public_key.c.account)
    return [PublicKey(row.account, row.public_hex.decode()) for row in await connection.execute(listed)]
