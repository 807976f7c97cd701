"""Org keys that the scope's directory holds for a member, for whoever has the member's master (car-sync.md §13b)."""

from sqlalchemy.ext.asyncio import AsyncEngine

from app.sql import org_keys
from app.sql.org_keys import PAGE, Wrap
from app.sql.transactions import reading
from foldpoint.canonical import Unreadable, read_json
from foldpoint.seal import Keyring
from foldpoint.seal.keys import exchange_identity
from foldpoint.seal.wraps import WrappedOrgKey, org_keys_of, read_wrapped
from foldpoint.slug import slug


async def unwrapped(engine: AsyncEngine, scope: int, master: bytes, user: str, granters: tuple[bytes, ...]) -> Keyring:
    """The keys, at every epoch, of every org whose wraps a trusted granter signed for this user.

    A wrap that does not unwrap is passed over: anybody whose token lets him may publish one.
    """
    wraps = [wrap for text in await _published(engine, scope, slug(user)) if (wrap := _read(text)) is not None]
    identity, keyring = exchange_identity(master, user), Keyring()
    for org in {wrap.org for wrap in wraps}:
        keyring = keyring.joined(Keyring.from_org_keys(org, org_keys_of(wraps, org, identity, user, granters)))
    return keyring


async def _published(engine: AsyncEngine, scope: int, recipient: str) -> list[bytes]:
    found: list[Wrap] = []
    async with reading(engine) as connection:
        while True:
            page = await org_keys.wraps(connection, scope, recipient, found[-1] if found else None)
            found += page
            if len(page) < PAGE:
                return [wrap.body for wrap in found]


def _read(text: bytes) -> WrappedOrgKey | None:
    try:
        return read_wrapped(read_json(text))
    except Unreadable:
        return None
