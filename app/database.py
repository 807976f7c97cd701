"""Engines on asyncpg, the only driver."""

from typing import Any

from sqlalchemy import URL, event, make_url
from sqlalchemy.exc import ArgumentError, DisconnectionError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

SCHEMES = ("postgres", "postgresql", "postgresql+asyncpg")

#: Sent with the connection's first message, so they cost no round trip.
SESSION = {
    "application_name": "foldpoint",
    "idle_in_transaction_session_timeout": "60s",
    "jit": "off",
    "lock_timeout": "10s",
    "statement_timeout": "60s",
    "TimeZone": "UTC",
}
#: For work on whole scopes.
NO_TIMEOUT = {"statement_timeout": "0", "idle_in_transaction_session_timeout": "0"}


class DatabaseUrlError(ValueError):
    """The address is not one of a PostgreSQL database. The message never repeats it: it may hold a password."""


def async_url(url: str) -> str:
    """The same database for SQLAlchemy and asyncpg; libpq's `sslmode` becomes asyncpg's `ssl`."""
    parsed = _parsed(url)
    if "sslmode" in parsed.query:
        ssl = parsed.query["sslmode"]
        parsed = parsed.difference_update_query(["sslmode"]).update_query_dict({"ssl": ssl})
    return parsed.set(drivername="postgresql+asyncpg").render_as_string(hide_password=False)


def create_engine(url: str, pool_size: int, **session: str) -> AsyncEngine:
    """`session` adds to or replaces the settings of `SESSION`."""
    connect: dict[str, Any] = {"server_settings": SESSION | session, "timeout": 10}
    engine = create_async_engine(
        async_url(url), pool_size=pool_size, max_overflow=0, pool_timeout=5, connect_args=connect, hide_parameters=True
    )
    event.listen(engine.sync_engine.pool, "checkout", _refuse_closed)
    return engine


def _refuse_closed(pooled: Any, _record: Any, _proxy: Any) -> None:
    """Let the pool replace a connection that the database has closed; asyncpg knows without asking."""
    if pooled.driver_connection.is_closed():
        raise DisconnectionError


def _parsed(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise DatabaseUrlError("the database URL cannot be read; write postgresql://user@host/database") from None
    if parsed.drivername not in SCHEMES:
        raise DatabaseUrlError("Foldpoint runs on PostgreSQL only; write postgresql://user@host/database")
    return parsed
