import asyncio

import typer

from app.cli.database import DataDir, database
from app.migrate import head, upgrade
from app.settings import Settings


def migrate(data_dir: DataDir = None) -> None:
    """Bring the database to this version's schema."""
    with database(Settings(), data_dir, create=True) as url:
        asyncio.run(upgrade(url))
    typer.echo(f"The schema is at revision {head()}.", err=True)
