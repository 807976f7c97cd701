import asyncio
import ipaddress
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
import uvicorn

from app.cli.database import DataDir, database, key_file, transaction
from app.key_file import KeyFile
from app.migrate import upgrade
from app.protocol import LongUrls
from app.server import PATIENT
from app.services.tokens import issue_first_admin
from app.settings import Settings
from app.sql.scope_keys import any_stored
from app.sql.transactions import begun

SHORTEST_ADMIN_TOKEN = 16

#: Requests still running this long after a stop are cut; what they committed stays.
STOP_SECONDS = 10

#: What a process needs beside its pool: patient work, the probe, the watch over tokens, and a command or two.
SPARE_CONNECTIONS = PATIENT + 5


def serve(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one.", min=0, max=65535)] = 8000,
    data_dir: DataDir = None,
    workers: Annotated[int, typer.Option(help="Server processes.", min=1)] = 1,
) -> None:
    """Migrate the database, then serve until stopped."""
    settings = Settings()
    _refuse_weak_admin_token(host, settings)
    signal.signal(signal.SIGTERM, _exit)
    _refuse_taken_address(host, port)
    connections = workers * (settings.pool_size + SPARE_CONNECTIONS)
    with database(settings, data_dir, connections, create=True) as url:
        asyncio.run(upgrade(url))
        if settings.admin_token is None:
            asyncio.run(_show_first_admin_token(url))
        path = key_file(settings, data_dir)
        asyncio.run(_prepare_key_file(url, path, own=settings.key_file is None))
        os.environ["FOLDPOINT_DATABASE_URL"] = url
        if path is not None:
            os.environ["FOLDPOINT_KEY_FILE"] = str(path)
        uvicorn.run(
            "app.cli.worker:application", factory=True, host=host, port=port, workers=workers,
            loop="uvloop", http=LongUrls, ws="none", lifespan="on", access_log=False, server_header=False,
            timeout_graceful_shutdown=STOP_SECONDS,
        )  # fmt: skip


def _refuse_taken_address(host: str, port: int) -> None:
    """Before anything is made: an admin token is shown once, and not by a start that fails."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        sys.exit(f"foldpoint: cannot listen on {host} port {port}: {error.strerror}; choose another --port or --host")


def _refuse_weak_admin_token(host: str, settings: Settings) -> None:
    token = settings.admin_token.get_secret_value() if settings.admin_token is not None else None
    if token is None or len(token) >= SHORTEST_ADMIN_TOKEN:
        return
    if not token:
        raise typer.BadParameter("FOLDPOINT_ADMIN_TOKEN is empty: set it or unset it")
    if not _is_loopback(host):
        raise typer.BadParameter(
            f"--host {host} can be reached from other machines, and FOLDPOINT_ADMIN_TOKEN is shorter than "
            f"{SHORTEST_ADMIN_TOKEN} characters: take a longer one, or unset it and one is made"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _exit(_signal: int, _frame: FrameType | None) -> None:
    """uvicorn raises the signal that stopped it once more; the embedded database must still be stopped after that."""
    raise SystemExit(0)


async def _prepare_key_file(url: str, path: Path | None, *, own: bool) -> None:
    """Make our own key file while no keys are kept under another, or say what is missing. Raises KeyFileError."""
    if path is not None and KeyFile.read(path) is not None:
        return
    async with transaction(url) as connection:
        kept = await any_stored(await begun(connection))
    if path is not None and own and not kept:
        with suppress(FileExistsError):
            KeyFile.make(path)
    elif path is not None or kept:
        typer.echo(
            f"There is no key file{'' if path is None else f' {path}'}: unlocked scopes do not answer.", err=True
        )


async def _show_first_admin_token(url: str) -> None:
    async with transaction(url) as connection:
        secret = await issue_first_admin(connection)
    if secret is not None:
        typer.echo(f"Admin token, shown this once: {secret}")
