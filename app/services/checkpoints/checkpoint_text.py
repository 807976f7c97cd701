"""A stored checkpoint's text as it goes out: a chunk in memory at a time."""

from collections.abc import AsyncGenerator

from sqlalchemy.ext.asyncio import AsyncEngine

from app.services.reading.reading_ops import Overtaken
from app.sql.checkpoint_texts import chunk
from app.sql.checkpoints import Stored
from app.sql.transactions import connected, driver


async def stored_text(
    engine: AsyncEngine, stored: Stored, start: int = 0, stop: int | None = None
) -> AsyncGenerator[bytes]:
    """The text between two offsets, a short statement per chunk. Raises Overtaken if it is removed meanwhile."""
    end = stored.size if stop is None else stop
    while start < end:
        async with connected(engine) as connection:
            piece = await chunk(await driver(connection), stored, start, end)
        if not piece:
            raise Overtaken("the checkpoint was removed")
        yield piece
        start += len(piece)
