"""The org-key directory of a scope, and who may publish in it (car-sync.md §13b, server.md §9).

Whoever reads the scope reads the directory: a wrap opens for its recipient alone. Publishing is a matter of
confidentiality. Members wrap the org's key for the public keys that they find here, so whoever put his own in
another's place would be given it. A public key is therefore published, and once published replaced, only by its
account or an admin; wraps are published by granters and admins. The last wrap for a recipient at an epoch stays.
"""

from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.problems import Problem
from app.services.access import Caller, revoked
from app.settings import Settings
from app.sql import org_keys, tokens
from app.sql.org_keys import PublicKey, Wrap
from app.sql.tokens import Grants
from app.sql.transactions import connected
from foldpoint.canonical import Unreadable
from foldpoint.org_directory import MAX_WRAP_BYTES, check_account, read_published_key, read_published_wrap


async def publish_wrap(
    connection: AsyncConnection, caller: Caller, scope: int, text: bytes, settings: Settings
) -> None:
    """Keep a wrap as it is. Raises forbidden, too_large, invalid_request."""
    grants = await _grants(connection, caller)
    if grants.role != "admin" and not grants.granter:
        raise Problem("forbidden", f"a token of role {grants.role} publishes wraps only if it is a granter's")
    if len(text) > MAX_WRAP_BYTES:
        facts = {**settings.limits(), "max_wrap_bytes": MAX_WRAP_BYTES}
        raise Problem("too_large", f"a wrap may have {MAX_WRAP_BYTES} bytes", facts)
    with _reading():
        wrapped = read_published_wrap(text)
    await org_keys.put_wrap(connection, scope, Wrap(wrapped.epoch, wrapped.recipient, text))


async def publish_key(connection: AsyncConnection, caller: Caller, scope: int, account: str, text: bytes) -> None:
    """Keep an account's public key in place of the one before. Raises forbidden, invalid_request."""
    grants = await _grants(connection, caller)
    if grants.role != "admin" and grants.account != account:
        raise Problem("forbidden", f"a token of role {grants.role} publishes the key of its own account alone")
    with _reading():
        check_account(account)
        public_hex = read_published_key(text)
    await org_keys.put_public_key(connection, scope, PublicKey(account, public_hex))


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except Unreadable as error:
        raise Problem("invalid_request", str(error), {"path": error.path}) from error


async def _grants(connection: AsyncConnection, caller: Caller) -> Grants:
    if caller.root:
        return Grants("admin")
    grants = await tokens.grants(connection, caller.token_hash)
    if grants is None:
        raise revoked()
    return grants


async def wraps_text(engine: AsyncEngine, scope: int, recipient: str) -> AsyncGenerator[bytes]:
    """The wraps for whoever has this slug as a JSON array, newest epoch first, a page in memory at a time.

    Recipients who share the slug are told apart where the wraps are opened, by what is signed.
    """
    lead, after = b"[", None
    while True:
        async with connected(engine) as connection:
            page = await org_keys.wraps(connection, scope, recipient, after)
        if page:
            yield lead + b",".join(wrap.body for wrap in page)
            lead, after = b",", page[-1]
        if len(page) < org_keys.PAGE:
            yield b"]" if after is not None else b"[]"
            return
