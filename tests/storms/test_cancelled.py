"""A transaction that is cancelled at any moment leaves nothing behind for the next user of its connection."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from app.database import create_engine
from app.sql.transactions import exclusive, reading, writing
from tests.storms.stored import connected

#: The loop's turns after which the work is cancelled; it takes about so many.
TURNS = 120


async def work(engine: AsyncEngine, begin: Callable[[AsyncEngine], AbstractAsyncContextManager[Any]]) -> None:
    async with begin(engine) as connection:
        query = "select generate_series(1, 1000)"
        await (connection.fetch(query) if begin is exclusive else connection.execute(text(query)))


@pytest.mark.parametrize("begin", [reading, writing, exclusive])
async def test_what_follows_a_cancelled_transaction_is_stored_when_it_is_acknowledged(
    database_url: str, begin: Callable[[AsyncEngine], AbstractAsyncContextManager[Any]]
) -> None:
    engine = create_engine(database_url, pool_size=1)
    await work(engine, begin)
    async with connected(database_url) as outside:
        for turns in range(TURNS):
            task = asyncio.create_task(work(engine, begin))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            async with exclusive(engine) as pg:
                await pg.execute("insert into scope (slug) values ($1)", f"after-{turns}")
            assert await outside.fetchval("select count(*) from scope where slug = $1", f"after-{turns}") == 1
    await engine.dispose()
