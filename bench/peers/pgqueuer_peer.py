"""pgqueuer: enqueue, 256 jobs a call."""

import asyncio
import sys

import asyncpg
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

from bench.peers.loop import ReadsNothing, drive


class PgQueuer:
    def __init__(self, url: str) -> None:
        self._run = asyncio.Runner().run
        self._connection = self._run(asyncpg.connect(url))
        self._queries = self._run(self._install())

    async def _install(self) -> Queries:
        queries = Queries(AsyncpgDriver(self._connection))
        await queries.install()
        return queries

    def prepare(self, batches: list[list[str]]) -> None:
        self._run(self._connection.execute("truncate pgqueuer, pgqueuer_log"))
        self._batches = [[message.encode() for message in batch] for batch in batches]

    def append(self) -> None:
        for batch in self._batches:
            self._run(self._queries.enqueue(["message"] * len(batch), batch, [0] * len(batch)))

    def read(self) -> int:
        raise ReadsNothing


if __name__ == "__main__":
    drive(PgQueuer(sys.argv[1]))
