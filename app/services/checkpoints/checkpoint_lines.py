"""A stored checkpoint as NDJSON: what it is and where to go on, then a record per line, then how many they were."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import Any

import orjson
from sqlalchemy.ext.asyncio import AsyncEngine

from app.services.checkpoints.checkpoint_text import stored_text
from app.sql.checkpoints import Stored
from foldpoint.checkpoint_leaves import enters, line_of
from foldpoint.splitting import Path, Splitter


async def stored_lines(engine: AsyncEngine, stored: Stored, cursor: str) -> AsyncGenerator[bytes]:
    """`{"checkpoint_hash","state_hash","frontier","scopes","cursor"}`, the lines of `line_of`, `{"lines"}`.

    The last line is missing from an answer that broke off. Raises Overtaken.
    """
    splitter, lines = Splitter(enters), _Lines(stored, cursor)
    async for piece in stored_text(engine, stored):
        yield await asyncio.to_thread(lines.of, splitter.feed(piece))
    yield await asyncio.to_thread(lines.of, splitter.finish())
    yield b'{"lines":%d}\n' % lines.count


class _Lines:
    def __init__(self, stored: Stored, cursor: str) -> None:
        self._cursor = cursor
        self._head: dict[str, Any] = {"checkpoint_hash": stored.hash, "state_hash": stored.state_hash}
        self.count = 0

    def of(self, leaves: Iterable[tuple[Path, str]]) -> bytes:
        return b"".join(line for leaf in leaves for line in self._of_leaf(*leaf))

    def _of_leaf(self, path: Path, text: str) -> Iterable[bytes]:
        if path == ("frontier",):
            self._head |= {"frontier": orjson.loads(text)}
        elif path == ("scopes",):
            head = self._head | {"scopes": orjson.loads(text), "cursor": self._cursor}
            yield orjson.dumps(head) + b"\n"
        elif (line := line_of(path, text)) is not None:
            self.count += 1
            yield line
