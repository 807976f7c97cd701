"""A client's connection in the hand: what is sent of a request, and when it breaks, is up to the test."""

import asyncio
import re
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import orjson

from tests.fixtures.server import ADMIN_TOKEN

RESET = struct.pack("ii", 1, 0)


class Wire:
    """One connection with one request on it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answered(self) -> bytes:
        """The first byte of the answer: what the request did is done."""
        return await self.reader.readexactly(1)

    async def answer(self) -> tuple[int, Any]:
        """The whole answer: its status, and its body as JSON."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = re.search(r"content-length: (\d+)", head)
        assert length is not None, head
        return int(head.split()[1]), orjson.loads(await self.reader.readexactly(int(length[1])))

    def reset(self) -> None:
        """Break the connection: the server gets a reset, not an end."""
        raw: socket.socket = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.writer.transport.abort()

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


@asynccontextmanager
async def connection(base: str) -> AsyncIterator[Wire]:
    address = urlsplit(base)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    wire = Wire(reader, writer)
    try:
        yield wire
    finally:
        writer.transport.abort()


def head(path: str, framing: str, token: str = ADMIN_TOKEN, method: str = "POST") -> bytes:
    return (
        f"{method} {path} HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\n{framing}\r\n\r\n"
    ).encode()


def request(path: str, body: bytes, token: str = ADMIN_TOKEN, method: str = "POST") -> bytes:
    """A whole request."""
    return head(path, f"Content-Length: {len(body)}", token, method) + body


def chunked(path: str, *pieces: bytes) -> bytes:
    """A request in chunks, of which the last one does not come."""
    return head(path, "Transfer-Encoding: chunked") + b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in pieces)
