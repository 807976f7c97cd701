"""Bringing a database to the schema of this version, whoever else is starting at the same time."""

import asyncio
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection

import migrations
from app.database import create_engine

LOCK = 0x666F6C64
TURN_SECONDS = 600.0


class MigrationError(RuntimeError):
    """The schema is not what this version needs, and the message says what to do."""


async def upgrade(url: str) -> None:
    """Migrate to head. One process at a time; the others wait, then find nothing to do."""
    engine = create_engine(url, pool_size=1, statement_timeout="10min")
    try:
        async with engine.connect() as connection:
            if await at_head(connection):
                return
            await _take_turn(connection)
            await connection.run_sync(_upgrade)
    finally:
        await engine.dispose()


async def prepare(url: str) -> None:
    """Give an empty database its schema; refuse any other that is not at head, for a server may be running on it."""
    engine = create_engine(url, pool_size=1)
    try:
        async with engine.connect() as connection:
            revision = await connection.run_sync(_revision)
            await connection.run_sync(_refuse_newer)
    finally:
        await engine.dispose()
    if revision is None:
        await upgrade(url)
    elif revision != head():
        raise MigrationError(
            f"the database is at schema revision {revision}, this version of Foldpoint needs {head()}: "
            "run `foldpoint migrate` or start this version's server"
        )


async def at_head(connection: AsyncConnection) -> bool:
    return await connection.run_sync(_revision) == head()


@cache
def head() -> str:
    revision = ScriptDirectory.from_config(_config()).get_current_head()
    assert revision is not None
    return revision


async def _take_turn(connection: AsyncConnection) -> None:
    """Hold the advisory lock until the connection closes.

    Asked for again and again instead of waited for: a waiting statement holds a snapshot, and a migration that
    builds an index concurrently would wait for that snapshot while its owner waits for the migration.
    """
    take = text("select pg_try_advisory_lock(:key)")
    deadline = asyncio.get_running_loop().time() + TURN_SECONDS
    while not await connection.scalar(take, {"key": LOCK}):
        await connection.rollback()
        if asyncio.get_running_loop().time() > deadline:
            raise MigrationError("another process has been migrating this database for ten minutes")
        await asyncio.sleep(0.1)
    await connection.commit()


def _upgrade(connection: Connection) -> None:
    _refuse_newer(connection)
    connection.rollback()
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _refuse_newer(connection: Connection) -> None:
    revision = _revision(connection)
    script = ScriptDirectory.from_config(_config())
    known = {each.revision for each in script.walk_revisions()}
    if revision is not None and revision not in known:
        raise MigrationError(
            f"the database is at schema revision {revision}, but this version of Foldpoint knows none after {head()}: "
            "start the version that migrated it, or restore a dump made before that"
        )


def _revision(connection: Connection) -> str | None:
    if connection.scalar(text("select to_regclass('alembic_version')")) is None:
        return None
    revision: str | None = connection.scalar(text("select version_num from alembic_version"))
    return revision


def _config() -> Config:
    config = Config()
    location = str(Path(migrations.__file__).parent)
    config.set_main_option("script_location", location.replace("%", "%%"))
    return config
