import asyncio
from typing import Annotated

import typer

from app.cli.database import DataDir, database, whole_scopes
from app.services.collection.upkeep import checkpoint_now, collect_and_retain, is_plain
from app.settings import Settings
from app.sql.scopes import listed

Scope = Annotated[str | None, typer.Option(help="One scope by name or slug; otherwise all.")]


def checkpoint(scope: Scope = None, data_dir: DataDir = None) -> None:
    """Make a checkpoint of everything that is folded now."""
    with database(Settings(), data_dir) as url:
        asyncio.run(_checkpoint(url, scope))


def gc(
    scope: Scope = None,
    as_of_ms: Annotated[int | None, typer.Option(help="What ages of a retention policy count from.", min=0)] = None,
    data_dir: DataDir = None,
) -> None:
    """Drop the ops that every active device has, after a checkpoint that covers them; apply the retention policy."""
    with database(Settings(), data_dir) as url:
        asyncio.run(_gc(url, scope, as_of_ms))


async def _checkpoint(url: str, scope: str | None) -> None:
    async with whole_scopes(url) as engine:
        for number, name in await listed(engine, scope):
            if not await is_plain(engine, number):
                typer.echo(f"{name}: no checkpoint of a scope that is sealed or empty", err=True)
            else:
                made = await checkpoint_now(engine, number)
                typer.echo(f"{name}: {made.hash}")


async def _gc(url: str, scope: str | None, as_of_ms: int | None) -> None:
    async with whole_scopes(url) as engine:
        for number, name in await listed(engine, scope):
            done = await collect_and_retain(engine, number, as_of_ms)
            typer.echo(f"{name}: {sum(done['dropped'].values())} ops dropped")
            if (trim := done["retention"]) is not None:
                typer.echo(f"{name}: {trim['dropped']} records trimmed, {trim['tombstoned']} left as stubs")
