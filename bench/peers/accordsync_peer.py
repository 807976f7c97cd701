"""accordsync-fastapi over HTTP: POST /v1/push of 256 ops, GET /v1/pull.

A record per message; with `16` as second argument sixteen assignments to each of sixteen records, its best case.
"""

import json
import subprocess
import sys
import time

import jwt
from accordsync_core import LocalWriter, encode_op

from bench.peers.accordsync_app import SCHEMA, SECRET
from bench.peers.client import Client, free_port, running
from bench.peers.loop import drive


class AccordSync:
    def __init__(self, port: int, records: int) -> None:
        token = jwt.encode({"sub": "bench"}, SECRET, "HS256")
        self._client = Client(port, authorization=f"Bearer {token}", **{"accord-device": "laptop"})
        self._started = time.monotonic_ns()
        self._writer = LocalWriter(SCHEMA, "laptop", self._clock)
        self._records = records
        self._cursor = self._rounds = 0

    def _clock(self) -> int:
        return 1_700_000_000_000 + (time.monotonic_ns() - self._started) // 1_000_000

    def prepare(self, batches: list[list[str]]) -> None:
        self._rounds += 1
        self._count = sum(map(len, batches))
        self._bodies = [
            json.dumps({"ops": [
                encode_op(self._writer.assign(f"message:{self._rounds}-{b}-{i % self._records}", "body", message))
                for i, message in enumerate(batch)
            ]}).encode()
            for b, batch in enumerate(batches)
        ]  # fmt: skip

    def append(self) -> None:
        for body in self._bodies:
            self._client.ask("POST", "/v1/push", body)

    def read(self) -> int:
        read = 0
        while read < self._count:
            page = self._client.ask("GET", f"/v1/pull?cursor={self._cursor}&limit=1000")
            assert page["items"], page
            read, self._cursor = read + len(page["items"]), page["cursor"]
        return read


if __name__ == "__main__":
    database, per_push = sys.argv[1], int(sys.argv[2])
    subprocess.run(
        [sys.executable, "-m", "accordsync_server", "migrate"], env={"ACCORD_DATABASE_URL": database}, check=True
    )
    port = free_port()
    command = (
        sys.executable, "-m", "uvicorn", "bench.peers.accordsync_app:application", "--factory", "--port", str(port),
        "--loop", "uvloop", "--http", "httptools", "--no-access-log", "--log-level", "warning",
    )  # fmt: skip
    with running(command, port, ACCORD_DATABASE_URL=database):
        drive(AccordSync(port, per_push))
