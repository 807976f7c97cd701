"""Bearer tokens: shown once, stored as their SHA-256."""

from hashlib import sha256
from secrets import token_urlsafe

from sqlalchemy.ext.asyncio import AsyncConnection

from app.sql import tokens
from app.sql.tokens import NewToken
from foldpoint.org_directory import check_account


async def issue(connection: AsyncConnection, new: NewToken) -> tuple[int, str]:
    """The token's number, and the token itself, which nothing can show again. Raises UnfitAccount."""
    if new.account is not None:
        check_account(new.account)
    secret = "fp_" + token_urlsafe(32)
    return await tokens.add(connection, new, sha256(secret.encode()).digest()), secret


async def issue_first_admin(connection: AsyncConnection) -> str | None:
    """An admin token for a database that has none."""
    if not await tokens.lacks_admin(connection):
        return None
    _, secret = await issue(connection, NewToken("admin"))
    return secret
