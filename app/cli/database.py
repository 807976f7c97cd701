"""The database a command works on: the one of the settings, else the embedded one in the data directory."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Annotated

import typer
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app import core_dumps
from app.database import NO_TIMEOUT, create_engine
from app.embedded import DURABLE, EmbeddedPostgres
from app.key_file import NAME as KEY_FILE
from app.key_file import KeyFile
from app.migrate import prepare
from app.services.keys.vault import Vault
from app.settings import Settings

DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Where the embedded PostgreSQL lives when FOLDPOINT_DATABASE_URL is unset; by default "
        "./foldpoint-data, as root /var/lib/foldpoint.",
        file_okay=False,
    ),
]


@contextmanager
def database(settings: Settings, data_dir: Path | None, connections: int = 0, *, create: bool = False) -> Iterator[str]:
    """The database's URL. An embedded server that already runs is shared, and goes on afterwards.

    Only with `create` an embedded database is made where there is none.
    """
    if settings.database_url is not None:
        if data_dir is not None:
            raise typer.BadParameter("FOLDPOINT_DATABASE_URL is set, so no data directory is used.")
        yield settings.database_url.get_secret_value()
        return
    most = max(connections, int(DURABLE["max_connections"]))
    directory = data_dir or _default_data_dir()
    if not create and not (directory / "data" / "PG_VERSION").exists():
        raise typer.BadParameter(
            f"there is no database in {directory.absolute()}: run this where the server was started, "
            "or with its --data-dir"
        )
    with EmbeddedPostgres(directory, {**DURABLE, "max_connections": str(most)}) as postgres:
        yield postgres.url()


def key_file(settings: Settings, data_dir: Path | None) -> Path | None:
    """Where the key file is: the setting says, or else it is in the data directory of an embedded database."""
    if settings.key_file is not None or settings.database_url is not None:
        return settings.key_file
    return (data_dir or _default_data_dir()).absolute() / KEY_FILE


def vault(settings: Settings, data_dir: Path | None) -> Vault:
    """The keyrings that a command can read, which then leaves no core dump. Raises KeyFileError."""
    core_dumps.leave_none()
    path = key_file(settings, data_dir)
    return Vault(None if path is None else KeyFile.read(path))


@asynccontextmanager
async def transaction(url: str) -> AsyncIterator[AsyncConnection]:
    """One transaction on a database of this version's schema; an empty database gets it."""
    await prepare(url)
    engine = create_engine(url, pool_size=1)
    try:
        async with engine.begin() as connection:
            yield connection
    finally:
        await engine.dispose()


@asynccontextmanager
async def whole_scopes(url: str) -> AsyncIterator[AsyncEngine]:
    """An engine without time-outs, for work on whole scopes of a database of this version's schema."""
    await prepare(url)
    engine = create_engine(url, pool_size=3, **NO_TIMEOUT)
    try:
        yield engine
    finally:
        await engine.dispose()


def _default_data_dir() -> Path:
    return Path("/var/lib/foldpoint" if os.geteuid() == 0 else "foldpoint-data")
