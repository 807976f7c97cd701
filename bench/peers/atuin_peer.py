"""atuin-server over HTTP: POST /api/v0/record of 256 records, GET /api/v0/record/next."""

import json
import sys
import tempfile
import uuid

from bench.peers.client import Client, free_port, running
from bench.peers.loop import drive

START_NS = 1_700_000_000_000_000_000


class Atuin:
    def __init__(self, port: int) -> None:
        user = {"username": "bench", "email": "bench@example.org", "password": "bench-bench-bench"}
        session = Client(port).ask("POST", "/register", json.dumps(user).encode())["session"]
        self._client = Client(port, authorization=f"Token {session}")
        self._host = str(uuid.uuid4())
        self._at = 0

    def prepare(self, batches: list[list[str]]) -> None:
        self._first = self._at
        self._bodies = [json.dumps([self._record(message) for message in batch]).encode() for batch in batches]

    def _record(self, message: str) -> dict[str, object]:
        self._at += 1
        return {
            "id": str(uuid.uuid4()), "idx": self._at - 1, "host": {"id": self._host, "name": ""},
            "timestamp": START_NS + self._at, "version": "v0", "tag": "kv",
            "data": {"data": message, "content_encryption_key": "none"},
        }  # fmt: skip

    def append(self) -> None:
        for body in self._bodies:
            self._client.ask("POST", "/api/v0/record", body)

    def read(self) -> int:
        at = self._first
        while at < self._at:
            page = self._client.ask("GET", f"/api/v0/record/next?host={self._host}&tag=kv&start={at}&count=1000")
            assert page, at
            at += len(page)
        return at - self._first


if __name__ == "__main__":
    database, program = sys.argv[1:]
    port = free_port()
    with (
        tempfile.TemporaryDirectory() as config,
        running(
            (program, "start"), port, ATUIN_CONFIG_DIR=config, ATUIN_HOST="127.0.0.1", ATUIN_PORT=str(port),
            ATUIN_OPEN_REGISTRATION="true", ATUIN_DB_URI=database.replace("postgresql:", "postgres:"), RUST_LOG="warn",
        ),
    ):  # fmt: skip
        drive(Atuin(port))
