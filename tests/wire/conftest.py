"""Callers of the session's server, and a look behind it."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import asyncpg
import httpx
import pytest

from tests.fixtures.server import RunningServer
from tests.fixtures.tokens import ClientOf, issue_token
from tests.wire.org_keys import Directory


@pytest.fixture
async def client_of(server: RunningServer) -> AsyncIterator[ClientOf]:
    """A client with a new token: of a role, for a scope, perhaps bound to a device, perhaps with grants."""
    async with AsyncExitStack() as clients:

        async def client(
            role: str,
            scope: str | None = None,
            device: str | None = None,
            account: str | None = None,
            *,
            granter: bool = False,
        ) -> httpx.AsyncClient:
            token = await issue_token(server.database_url, role, scope, device, account, granter=granter)
            return await clients.enter_async_context(server.client(token.secret))

        yield client


@pytest.fixture
async def stranger(server: RunningServer) -> AsyncIterator[httpx.AsyncClient]:
    """A client whose token is nobody's."""
    async with server.client("fp_no-such-token") as client:
        yield client


@pytest.fixture
async def database(server: RunningServer) -> AsyncIterator[asyncpg.Connection]:
    """The database behind the session's server."""
    connection = await asyncpg.connect(server.database_url)
    yield connection
    await connection.close()


@pytest.fixture
def directory(admin: httpx.AsyncClient, scope: str) -> Directory:
    """The org-key directory of the test's scope, as an admin uses it."""
    return Directory(admin, scope)
