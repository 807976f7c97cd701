"""Requests sent as bytes, one after another on one connection, for what a client library hides."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.fixtures.server import ADMIN_TOKEN, RunningServer


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, line: str, *headers: str, body: bytes = b"", token: str = ADMIN_TOKEN) -> bytes:
        """Send a request, and read the whole answer with its head; what is announced need not be sent."""
        head = [f"{line} HTTP/1.1", "Host: foldpoint", f"Authorization: Bearer {token}", *headers, "", ""]
        self._writer.write("\r\n".join(head).encode() + body)
        await self._writer.drain()
        answer = await self._reader.readuntil(b"\r\n\r\n")
        lengths = [line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        return answer + await self._reader.readexactly(int(lengths[0].split(b":")[1]))


@asynccontextmanager
async def connected(server: RunningServer) -> AsyncIterator[Connection]:
    host, _, port = server.base.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    yield Connection(reader, writer)
    writer.close()
    await writer.wait_closed()
