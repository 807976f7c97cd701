"""Long answers, read from one snapshot to the end before any of them is sent.

A reader that stops reading so keeps a file waiting, and no connection; and what fails while it is read is still
answered as a problem.
"""

from collections.abc import AsyncGenerator, Iterable
from tempfile import SpooledTemporaryFile
from typing import Any

import orjson

#: So much waits in memory until it is sent, and more than that in a temporary file.
SPOOLED_BYTES = 4 * 1024 * 1024
PIECE_BYTES = 64 * 1024


class Spool:
    """Written first, then sent once, between a `head` and an `end` that may come to be known last."""

    def __init__(self) -> None:
        self._file = SpooledTemporaryFile(SPOOLED_BYTES)  # noqa: SIM115 - it is closed when it is sent
        self.head = self.end = b""
        self._lead = b""

    def write(self, piece: bytes) -> None:
        self._file.write(piece)

    def add(self, values: Iterable[Any]) -> None:
        """Write the next elements of a JSON array, without its brackets."""
        if elements := orjson.dumps(list(values))[1:-1]:
            self.write(self._lead + elements)
            self._lead = b","

    @property
    def is_short(self) -> bool:
        return self._file.tell() <= SPOOLED_BYTES

    def whole(self) -> bytes:
        with self._file as file:
            file.seek(0)
            return self.head + file.read() + self.end

    async def pieces(self) -> AsyncGenerator[bytes]:
        with self._file as file:
            file.seek(0)
            yield self.head + file.read(PIECE_BYTES)
            while piece := file.read(PIECE_BYTES):
                yield piece
            yield self.end
