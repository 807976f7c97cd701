"""Database errors after which the same request may work: nothing of its last transaction was stored."""

import asyncpg
from sqlalchemy.dialects.postgresql.asyncpg import AsyncAdapt_asyncpg_dbapi
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from app.problems import Problem

#: The database is away, too busy, not a primary, or asks for a retry.
AWAY: tuple[type[Exception], ...] = (
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InsufficientResourcesError,
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.LockNotAvailableError,
    asyncpg.QueryCanceledError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InvalidCachedStatementError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the database is just ending the connection
    PoolTimeout,
    ConnectionError,
    TimeoutError,
)


#: What the pool raises for a connection that cannot be made, where no statement of SQLAlchemy's is meant.
NO_CONNECTION: type[Exception] = AsyncAdapt_asyncpg_dbapi.Error
#: What a transaction may end in that `unavailable` can judge.
DATABASE_ERRORS: tuple[type[Exception], ...] = (DBAPIError, NO_CONNECTION, *AWAY)


#: No connection is to be had: the next try would only wait again.
UNREACHABLE: tuple[type[Exception], ...] = (
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    PoolTimeout,
    ConnectionError,
    TimeoutError,
)


def unavailable(error: Exception) -> Problem | None:
    """The problem a client is told, or None if the error is a fault of ours."""
    return Problem("unavailable", "the database does not answer now") if isinstance(_cause(error), AWAY) else None


def unreachable(error: BaseException) -> bool:
    return isinstance(_cause(error), UNREACHABLE)


def _cause(error: BaseException) -> BaseException | None:
    """What the driver said, inside of what SQLAlchemy made of it."""
    if isinstance(error, DBAPIError) and error.orig is not None:
        return error.orig.__cause__
    return error.__cause__ if isinstance(error, NO_CONNECTION) else error
