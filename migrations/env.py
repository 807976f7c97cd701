"""Runs on the connection that `app.migrate` hands over; alone, `alembic` serves to write revisions."""

import asyncio
import os

from alembic import context
from sqlalchemy import Connection

from app.database import create_engine
from app.sql.tables import metadata


def run(connection: Connection) -> None:
    context.configure(connection=connection, target_metadata=metadata, transaction_per_migration=True)
    with context.begin_transaction():
        context.run_migrations()


async def connect_and_run() -> None:
    engine = create_engine(os.environ["FOLDPOINT_DATABASE_URL"], pool_size=1)
    async with engine.connect() as connection:
        await connection.run_sync(run)
        await connection.commit()
    await engine.dispose()


connection: Connection | None = context.config.attributes.get("connection")
if connection is None:
    asyncio.run(connect_and_run())
else:
    run(connection)
