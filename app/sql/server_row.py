"""What the database says of the server as a whole."""

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from app.sql.tables import server


async def read_epoch(engine: AsyncEngine) -> str:
    """The server epoch: a random id that a restore changes."""
    async with engine.connect() as connection:
        return str((await connection.execute(select(server.c.epoch))).scalar_one())
