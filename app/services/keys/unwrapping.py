"""Org keys that the scope's directory holds for a member, for whoever has the member's master (car-sync.md §13b)."""

import asyncio
from collections import defaultdict

from sqlalchemy.ext.asyncio import AsyncEngine

from app.sql import org_keys
from app.sql.org_keys import PAGE, Wrap
from app.sql.transactions import reading
from foldpoint.canonical import Unreadable, read_json
from foldpoint.seal import Keyring
from foldpoint.seal.keys import exchange_identity
from foldpoint.seal.wraps import WrappedOrgKey, org_keys_of, read_wrapped
from foldpoint.slug import slug

#: Wraps that are tried, of the latest epochs: anybody who may publish may publish many.
MOST_WRAPS = 10_000


async def unwrapped(engine: AsyncEngine, scope: int, master: bytes, user: str, granters: tuple[bytes, ...]) -> Keyring:
    """The keys, at every epoch, of every org whose wraps a trusted granter signed for this user.

    A wrap that does not unwrap is passed over: anybody whose token lets him may publish one.
    """
    published = await _published(engine, scope, slug(user))
    return await asyncio.to_thread(_opened, published, master, user, granters)


def _opened(published: list[bytes], master: bytes, user: str, granters: tuple[bytes, ...]) -> Keyring:
    wraps: dict[str, list[WrappedOrgKey]] = defaultdict(list)
    for text in published:
        if (wrap := _read(text)) is not None:
            wraps[wrap.org].append(wrap)
    identity, audiences = exchange_identity(master, user), Keyring()
    for org, of_org in wraps.items():
        audiences = audiences.joined(Keyring.from_org_keys(org, org_keys_of(of_org, org, identity, user, granters)))
    return audiences


async def _published(engine: AsyncEngine, scope: int, recipient: str) -> list[bytes]:
    found: list[Wrap] = []
    async with reading(engine) as connection:
        while True:
            page = await org_keys.wraps(connection, scope, recipient, found[-1] if found else None)
            found += page
            if len(page) < PAGE or len(found) >= MOST_WRAPS:
                return [wrap.body for wrap in found]


def _read(text: bytes) -> WrappedOrgKey | None:
    try:
        return read_wrapped(read_json(text))
    except Unreadable:
        return None
