import asyncio
from enum import StrEnum
from typing import Annotated

import typer
from sqlalchemy import RowMapping

from app.cli.database import DataDir, database, transaction
from app.services.tokens import issue
from app.settings import Settings
from app.sql import tokens
from app.sql.scopes import ensure_scope
from app.sql.tokens import NewToken

commands = typer.Typer(help="Bearer tokens.", no_args_is_help=True)

HEADINGS = ("id", "role", "scope", "device", "grants", "created", "revoked")


class Role(StrEnum):
    device = "device"
    executor = "executor"
    reader = "reader"
    admin = "admin"


@commands.command()
def create(
    role: Annotated[Role, typer.Option(help="What the token may do.")],
    scope: Annotated[str | None, typer.Option(help="The sync scope it is for; an admin's is every scope.")] = None,
    device: Annotated[str | None, typer.Option(help="The only device it may speak for; without, any.")] = None,
    account: Annotated[str | None, typer.Option(help="It may publish this account's org public key.")] = None,
    granter: Annotated[bool, typer.Option("--granter", help="It may publish key wraps.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Make a token and print it, this once."""
    _refuse_contradictions(role, scope, device)
    bound = device.encode() if device is not None else None
    with database(Settings(), data_dir) as url:
        number, secret = asyncio.run(_create(url, scope, NewToken(role.value, None, bound, account, granter)))
    typer.echo(f"Token {number}. It is not stored and cannot be shown again:", err=True)
    typer.echo(secret)


@commands.command(name="list")
def list_tokens(data_dir: DataDir = None) -> None:
    """List the tokens, never the secrets."""
    with database(Settings(), data_dir) as url:
        rows = [HEADINGS, *(_cells(row) for row in asyncio.run(_every(url)))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@commands.command()
def revoke(token_id: Annotated[int, typer.Argument(metavar="ID")], data_dir: DataDir = None) -> None:
    """End a token: the next request that uses it is refused."""
    with database(Settings(), data_dir) as url:
        found = asyncio.run(_revoke(url, token_id))
    if not found:
        raise typer.BadParameter(f"there is no token {token_id}")
    typer.echo(f"Token {token_id} is revoked.", err=True)


def _refuse_contradictions(role: Role, scope: str | None, device: str | None) -> None:
    if role is Role.admin and scope is not None:
        raise typer.BadParameter("an admin's token is for every scope: leave --scope out")
    if role is not Role.admin and not scope:
        raise typer.BadParameter(f"a token of role {role} is for one scope: name it with --scope")
    if role is not Role.device and device is not None:
        raise typer.BadParameter("only a token of role device speaks for a device")


async def _create(url: str, scope: str | None, new: NewToken) -> tuple[int, str]:
    async with transaction(url) as connection:
        number = await ensure_scope(connection, scope) if scope is not None else None
        return await issue(connection, new._replace(scope=number))


async def _every(url: str) -> list[RowMapping]:
    async with transaction(url) as connection:
        return await tokens.every(connection)


async def _revoke(url: str, number: int) -> bool:
    async with transaction(url) as connection:
        return await tokens.revoke(connection, number)


def _cells(row: RowMapping) -> tuple[str, ...]:
    scope = row["name"].decode(errors="backslashreplace") if row["name"] is not None else row["slug"]
    device = row["device"].decode(errors="backslashreplace") if row["device"] is not None else None
    grants = [f"account={row['account']}"] if row["account"] is not None else []
    grants += ["granter"] if row["granter"] else []
    times = (f"{row[name]:%Y-%m-%d %H:%M}" if row[name] else "" for name in ("created_at", "revoked_at"))
    return (str(row["id"]), row["role"], scope or "every scope", device or "", " ".join(grants), *times)
