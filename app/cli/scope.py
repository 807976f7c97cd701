"""`foldpoint scope`: keys of sealed scopes."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from sqlalchemy.ext.asyncio import AsyncEngine

from app.cli.database import DataDir, database, vault, whole_scopes
from app.services.access import Caller
from app.services.keys.trying_keys import Given
from app.services.keys.unlocking import Unlocking
from app.services.keys.vault import Vault
from app.services.slots import Slots
from app.settings import Settings
from app.sql import scopes
from app.sql.scopes import listed
from foldpoint.canonical import Unreadable, read_json

commands = typer.Typer(help="Unlock and lock sealed scopes.", no_args_is_help=True)

#: Who runs a command has the database in hand.
OPERATOR = Caller(b"", root=True)
Scope = Annotated[str, typer.Option(help="The scope by name or slug.")]


@commands.command()
def unlock(
    scope: Scope,
    user: Annotated[
        str | None, typer.Option(help="Whose passphrase it is, as the devices have it; it is asked for.")
    ] = None,
    keys: Annotated[
        Path | None, typer.Option(help="A file with keys: the body of PUT /keys.", exists=True, dir_okay=False)
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Give the server a scope's passphrase or keys, and fold what they open."""
    if (user is None) == (keys is None):
        raise typer.BadParameter("give either --user or --keys")
    settings = Settings()
    readable = vault(settings, data_dir)
    given = _asked(user) if user is not None else _read(keys)
    with database(settings, data_dir) as url:
        asyncio.run(_unlock(url, scope, given, readable))


@commands.command()
def lock(scope: Scope, data_dir: DataDir = None) -> None:
    """Forget a scope's keys, and remove what was folded under them."""
    settings = Settings()
    with database(settings, data_dir) as url:
        asyncio.run(_lock(url, scope, vault(settings, data_dir)))


def _asked(user: str) -> Given:
    """The passphrase is typed unseen, or is the first line of standard input."""
    try:
        if sys.stdin.isatty():
            passphrase = str(typer.prompt("Passphrase", hide_input=True))
        else:
            passphrase = sys.stdin.buffer.readline().removesuffix(b"\n").decode()
        return Given.read({"passphrase": passphrase, "user": user})
    except UnicodeDecodeError:
        raise typer.BadParameter("the passphrase is not UTF-8") from None
    except Unreadable as error:
        raise typer.BadParameter(str(error)) from None


def _read(keys: Path | None) -> Given:
    assert keys is not None
    try:
        return Given.read(read_json(keys.read_bytes()))
    except Unreadable:
        raise typer.BadParameter(f"{keys} holds no keys as PUT /keys takes them") from None


async def _unlock(url: str, name: str, given: Given, readable: Vault) -> None:
    async with whole_scopes(url) as engine:
        number = await _number(engine, name)
        async with engine.connect() as connection:
            ops = (await scopes.row(connection, number)).ops
        unlocking = Unlocking(engine, Slots(1, each=1), readable)
        with typer.progressbar(length=ops, label=name, file=sys.stderr) as bar:
            _tell(name, await unlocking.unlock(OPERATOR, number, given, bar.update))


async def _lock(url: str, name: str, readable: Vault) -> None:
    async with whole_scopes(url) as engine:
        unlocking = Unlocking(engine, Slots(1, each=1), readable)
        _tell(name, await unlocking.lock(OPERATOR, await _number(engine, name)))


async def _number(engine: AsyncEngine, name: str) -> int:
    found = await listed(engine, name)
    if not found:
        raise typer.BadParameter(f"there is no scope {name!r}")
    return found[0][0]


def _tell(name: str, told: dict[str, Any]) -> None:
    opened = ", ".join(told["unlocked"]) or "nothing"
    typer.echo(f"{name}: unlocked {opened}; {told['opened_ops']} ops opened, {told['unopened_ops']} not")
