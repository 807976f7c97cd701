"""Databases of our own on a PostgreSQL server."""

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg
from sqlalchemy import make_url


@contextmanager
def fresh_database(server: str) -> Iterator[str]:
    """The URL of a new database; it is dropped in the end."""
    name = f"foldpoint_bench_{secrets.token_hex(4)}"
    asyncio.run(execute(server, f"create database {name}"))
    try:
        yield at_database(server, name)
    finally:
        asyncio.run(execute(server, f"drop database {name} with (force)"))


def at_database(server: str, name: str) -> str:
    return make_url(server).set(database=name).render_as_string(hide_password=False)


async def execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
