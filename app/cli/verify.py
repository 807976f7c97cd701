import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Annotated

import typer
from sqlalchemy.ext.asyncio import AsyncEngine

from app.cli.database import DataDir, database, vault, whole_scopes
from app.services.keys.vault import Vault
from app.services.verification.verifying import readable
from app.services.verification.verifying import verify as verify_scope
from app.settings import Settings
from app.sql import scopes
from app.sql.scopes import listed


def verify(
    scope: Annotated[str | None, typer.Option(help="One scope by name or slug; otherwise all.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Check chains, heads, records against a refold, run_seen and checkpoints; exit 1 if anything is wrong."""
    settings = Settings()
    with database(settings, data_dir) as url:
        found = asyncio.run(_verify(url, scope, vault(settings, data_dir)))
    if found:
        sys.exit(1)


async def _verify(url: str, scope: str | None, keys: Vault) -> int:
    total = 0
    async with whole_scopes(url) as engine:
        for number, name in await listed(engine, scope):
            found = [fault async for fault in _watched(engine, number, name, keys)]
            for fault in found:
                typer.echo(f"{name}: {fault}")
            unread = (
                "" if await readable(engine, number, keys) else "; what is opened was not checked: no key file here"
            )
            typer.echo(f"{name}: {'ok' if not found else f'{len(found)} faults'}{unread}", err=True)
            total += len(found)
    return total


async def _watched(engine: AsyncEngine, scope: int, name: str, keys: Vault) -> AsyncIterator[str]:
    """The faults of a scope, with a bar over its ops where a person watches."""
    async with engine.connect() as connection:
        ops = (await scopes.row(connection, scope)).ops
    with typer.progressbar(length=ops, label=name, file=sys.stderr) as bar:
        async for fault in verify_scope(engine, scope, lambda: bar.update(1), keys):
            yield fault
