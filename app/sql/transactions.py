"""Where a request's transaction begins and ends.

The first statement of a transaction always goes through SQLAlchemy, so that statements sent on the
driver's own connection afterwards are inside it (SQLAlchemy opens its transactions lazily).
"""

import asyncio
from collections.abc import AsyncIterator, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, cast

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.util import greenlet_spawn

Row = Mapping[str, Any]


class Cursor(Protocol):
    """What a query gives piece by piece: iterated, or awaited and fetched from."""

    def __aiter__(self) -> AsyncIterator[Row]: ...
    def __await__(self) -> Generator[Any, None, "Cursor"]: ...
    async def fetch(self, n: int) -> list[Row]: ...


class Driver(Protocol):
    """asyncpg's connection, as far as hot statements use it."""

    async def execute(self, query: str, *args: Any) -> str: ...
    async def fetch(self, query: str, *args: Any) -> list[Row]: ...
    async def fetchrow(self, query: str, *args: Any) -> Row | None: ...
    async def fetchval(self, query: str, *args: Any) -> Any: ...
    async def copy_records_to_table(
        self, table_name: str, *, records: Iterable[Any], columns: Sequence[str]
    ) -> str: ...
    async def copy_to_table(
        self,
        table_name: str,
        *,
        source: AsyncIterator[bytes],
        columns: Sequence[str],
        format: str,  # noqa: A002
    ) -> str: ...
    def cursor(self, query: str, *args: Any, prefetch: int | None = None) -> "Cursor": ...
    def transaction(self) -> AbstractAsyncContextManager[Any]: ...


@asynccontextmanager
async def connected(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """A connection of the pool; one whose work was cancelled is closed instead of given back.

    A client that hangs up in mid-answer cancels the rollback too: the next user would be inside that transaction.
    """
    async with engine.connect() as connection:
        try:
            yield connection
        except (asyncio.CancelledError, GeneratorExit):
            assert connection.sync_connection is not None
            connection.sync_connection.invalidate()
            raise


@asynccontextmanager
async def reading(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """One snapshot for several reads. It holds no lock, and refuses to write."""
    async with connected(engine) as connection:
        await connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        async with connection.begin():
            yield connection


@asynccontextmanager
async def writing(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """One read-committed transaction, committed at the end."""
    async with connected(engine) as connection, connection.begin():
        yield connection


@asynccontextmanager
async def alone(engine: AsyncEngine) -> AsyncIterator[Driver]:
    """The driver's connection, on which each statement is a transaction of its own: the cheapest there is."""
    pooled = await engine.raw_connection()
    try:
        yield cast(Driver, pooled.driver_connection)
    except (asyncio.CancelledError, GeneratorExit):
        pooled.invalidate()
        raise
    finally:
        await greenlet_spawn(pooled.close)


@asynccontextmanager
async def exclusive(engine: AsyncEngine) -> AsyncIterator[Driver]:
    """One read-committed transaction on the driver's connection alone: the hot path of a push."""
    async with alone(engine) as pg, pg.transaction():
        yield pg


async def begun(connection: AsyncConnection) -> Driver:
    """The driver's connection of a transaction in which nothing was asked yet."""
    await connection.execute(text("select"))
    return await driver(connection)


async def driver(connection: AsyncConnection) -> Driver:
    """The driver's connection, inside the transaction."""
    pooled = await connection.get_raw_connection()
    return cast(Driver, pooled.driver_connection)


async def database_ms(connection: AsyncConnection) -> int:
    """The database clock now, not at the start of the transaction, in ms."""
    now = text("select (extract(epoch from clock_timestamp()) * 1000)::bigint")
    return int((await connection.execute(now)).scalar_one())
