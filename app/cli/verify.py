import asyncio
import sys
from typing import Annotated

import typer

from app.cli.database import DataDir, database
from app.database import create_engine
from app.migrate import prepare
from app.services.verifying import verify as faults_of
from app.settings import Settings
from app.sql.scopes import listed


def verify(
    scope: Annotated[str | None, typer.Option(help="One scope by name or slug; otherwise all.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Check chains, heads, records against a refold, run_seen and checkpoints; exit 1 if anything is wrong."""
    with database(Settings(), data_dir) as url:
        found = asyncio.run(_verify(url, scope))
    if found:
        sys.exit(1)


async def _verify(url: str, scope: str | None) -> int:
    await prepare(url)
    engine = create_engine(url, pool_size=2, statement_timeout="0", idle_in_transaction_session_timeout="0")
    total = 0
    try:
        for number, name in await listed(engine, scope):
            found = 0
            async for fault in faults_of(engine, number):
                typer.echo(f"{name}: {fault}")
                found += 1
            typer.echo(f"{name}: {'ok' if not found else f'{found} faults'}", err=True)
            total += found
    finally:
        await engine.dispose()
    return total
