"""Server processes on one database, started and killed while clients go on."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx

from tests.fixtures.server import ADMIN_TOKEN, RunningServer

#: What a client may see of a server that is killed or cannot reach its database, and then tries again.
AWAY = (httpx.TransportError, ConnectionError)
REFUSED_FOR_NOW = 503


@dataclass
class Fleet:
    """`call` sends each request to the next server that runs, and waits while none does."""

    database_url: str
    start_server: Callable[..., RunningServer] | None = None
    running: list[RunningServer] = field(default_factory=list)
    #: Every server there was, with the length of its log when it joined.
    seen: dict[str, tuple[RunningServer, int]] = field(default_factory=dict)
    up: asyncio.Event = field(default_factory=asyncio.Event)
    clients: dict[str, httpx.AsyncClient] = field(default_factory=dict)
    turns: Iterator[int] = field(default_factory=count)
    #: How often a call was tried again.
    retries: int = 0

    async def start(self, number: int = 1, **settings: str) -> None:
        assert self.start_server is not None
        starts = (asyncio.to_thread(self.start_server, **settings) for _ in range(number))
        for server in await asyncio.gather(*starts):
            self.take(server)

    def take(self, server: RunningServer) -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=100)
        self.clients[server.base] = httpx.AsyncClient(base_url=server.base, timeout=60, limits=limits, verify=False)
        self.running.append(server)
        self.seen[server.base] = (server, len(server.log))
        self.up.set()

    def kill(self, index: int = 0) -> None:
        """SIGKILL one of those that run."""
        self._leave(index).kill()

    async def stop(self, index: int = 0) -> None:
        """Stop one of those that run; it may finish what it has begun."""
        await asyncio.to_thread(self._leave(index).stop)

    def _leave(self, index: int) -> RunningServer:
        server = self.running.pop(index)
        if not self.running:
            self.up.clear()
        return server

    async def __aenter__(self) -> "Fleet":
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self.clients.values():
            await client.aclose()
        assert not (failures := self.failures()), failures[0]

    def failures(self) -> list[str]:
        """The logs, since they joined, of servers that logged a fault of their own."""
        logs = ("".join(server.log[before:]) for server, before in self.seen.values())
        return [log for log in logs if "unexpected failure" in log]

    def client(self) -> httpx.AsyncClient:
        """A client of the next server."""
        return self.clients[self.running[next(self.turns) % len(self.running)].base]

    async def once(self, method: str, path: str, token: str = ADMIN_TOKEN, **request: Any) -> httpx.Response:
        """One try at the next server."""
        headers = {"Authorization": f"Bearer {token}", **request.pop("headers", {})}
        return await self.client().request(method, path, headers=headers, **request)

    async def call(self, method: str, path: str, token: str = ADMIN_TOKEN, **request: Any) -> httpx.Response:
        """The answer, after as many tries as it takes; a server that says 503 also says when to come back."""
        while True:
            await self.up.wait()
            try:
                response = await self.once(method, path, token, **request)
            except AWAY:
                self.retries += 1
                await asyncio.sleep(0.01)
                continue
            if response.status_code != REFUSED_FOR_NOW:
                assert response.status_code < 500, response.text
                return response
            assert float(response.headers["Retry-After"]) > 0
            self.retries += 1
            await asyncio.sleep(0.05)
