"""HTTP with as little Python as can be, so that it is not the client that is measured."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple, cast


class Address(NamedTuple):
    host: str
    port: int
    token: str

    def get(self, path: str) -> bytes:
        return self._request("GET", path, b"")

    def post(self, path: str, body: bytes = b"") -> bytes:
        return self._request("POST", path, body)

    def _request(self, method: str, path: str, body: bytes) -> bytes:
        """A whole request, ready to be written."""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nAuthorization: Bearer {self.token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


class Refused(RuntimeError):
    """An answer that is not 200."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"{status}: {body[:300].decode(errors='replace')}")
        self.status = status


class Connection(asyncio.Protocol):
    """One keep-alive connection, one request at a time; answers end by their announced length.

    A server hangs up on who was silent for some seconds, as happens between rounds: then it is opened again.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._transport: asyncio.Transport | None = None
        self._asked: asyncio.Future[bytes] | None = None
        self._received = bytearray()
        self._status = self._body_at = self._end = 0

    async def open(self) -> None:
        await asyncio.get_running_loop().create_connection(lambda: self, self._address.host, self._address.port)

    async def ask(self, request: bytes) -> bytes:
        """The body of the answer. Raises Refused."""
        if self._transport is None or self._transport.is_closing():
            await self.open()
            assert self._transport is not None
        self._asked = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._asked

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its bases

    def connection_lost(self, error: Exception | None) -> None:
        if self._asked is not None and not self._asked.done():
            self._asked.set_exception(error or ConnectionError("the server hung up"))

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._end and not self._read_head():
            return
        if len(self._received) >= self._end:
            self._settle(bytes(self._received[self._body_at : self._end]))

    def _read_head(self) -> bool:
        """Whether the head is there, and with it where the body ends."""
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return False
        head = bytes(self._received[:end]).lower()
        _, found, length = head.partition(b"\r\ncontent-length:")
        if not found:
            raise ValueError("an answer without a length; this client is for short ones")
        self._status = int(head[9:12])
        self._body_at = end + 4
        self._end = self._body_at + int(length.split(b"\r\n", 1)[0])
        return True

    def _settle(self, body: bytes) -> None:
        asked, status = self._asked, self._status
        self._received.clear()
        self._end = 0
        if asked is None or asked.done():
            return
        if status == 200:
            asked.set_result(body)
        else:
            asked.set_exception(Refused(status, body))


@asynccontextmanager
async def connections(address: Address, count: int) -> AsyncIterator[Sequence[Connection]]:
    async with AsyncExitStack() as opened:
        made = [Connection(address) for _ in range(count)]
        for connection in made:
            await connection.open()
            opened.callback(connection.close)
        yield made


async def ask_all(connection: Connection, requests: Sequence[bytes]) -> None:
    """One after the other."""
    for request in requests:
        await connection.ask(request)
