"""What the peers that are servers need: a process on a free port, and one keep-alive connection to it."""

import contextlib
import http.client
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from typing import Any

START_SECONDS = 60


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextlib.contextmanager
def running(command: Sequence[str], port: int, **environment: str) -> Iterator[None]:
    """A server, from when it accepts connections."""
    process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _accepts(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[0]} did not start")
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(30)


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


class Client:
    """JSON over one connection; it is opened again when the server closed it between rounds."""

    def __init__(self, port: int, **headers: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port)
        self.headers = {"content-type": "application/json", **headers}

    def ask(self, method: str, path: str, body: bytes | None = None) -> Any:
        try:
            return self._ask(method, path, body)
        except (OSError, http.client.HTTPException):
            self._connection.close()
            return self._ask(method, path, body)

    def _ask(self, method: str, path: str, body: bytes | None) -> Any:
        self._connection.request(method, path, body, self.headers)
        answer = self._connection.getresponse()
        read = answer.read()
        if answer.status not in (200, 204):
            raise RuntimeError(f"{method} {path}: {answer.status} {read[:300]!r}")
        return json.loads(read) if read else None
