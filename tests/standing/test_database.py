"""Which addresses are taken, and what a connection is told."""

import pytest
from sqlalchemy import text
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from app.database import SESSION, DatabaseUrlError, async_url, create_engine


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+asyncpg"])
@pytest.mark.parametrize("rest", ["matt:p%40ss@db:5433/foldpoint", "postgres@/postgres?host=/run/foldpoint"])
def test_one_database_under_each_scheme(scheme: str, rest: str) -> None:
    assert async_url(f"{scheme}://{rest}").replace("%2F", "/") == f"postgresql+asyncpg://{rest}"


def test_libpq_s_sslmode_is_understood() -> None:
    assert (
        async_url("postgresql://db/foldpoint?sslmode=verify-full")
        == "postgresql+asyncpg://db/foldpoint?ssl=verify-full"
    )


@pytest.mark.parametrize("url", ["mysql://root:hunter2@db/foldpoint", "sqlite:///foldpoint.db", "hunter2", ""])
def test_another_kind_of_database_is_refused_without_repeating_its_url(url: str) -> None:
    with pytest.raises(DatabaseUrlError, match="postgresql://user@host/database") as refused:
        async_url(url)
    assert "hunter2" not in str(refused.value)


async def test_every_connection_has_time_outs_and_utc(database_url: str) -> None:
    engine = create_engine(database_url, pool_size=1)
    async with engine.connect() as connection:
        for name, value in SESSION.items():
            told = await connection.scalar(text("select current_setting(:name)"), {"name": name})
            assert told == value.replace("60s", "1min")
    await engine.dispose()


async def test_a_setting_can_be_replaced(database_url: str) -> None:
    engine = create_engine(database_url, pool_size=1, statement_timeout="7s")
    async with engine.connect() as connection:
        assert await connection.scalar(text("show statement_timeout")) == "7s"
        assert await connection.scalar(text("show lock_timeout")) == "10s"
    await engine.dispose()


async def test_a_pool_never_grows_past_its_size(database_url: str) -> None:
    engine = create_engine(database_url, pool_size=1)
    async with engine.connect():
        with pytest.raises(PoolTimeoutError):
            async with engine.connect():
                pass
    await engine.dispose()
