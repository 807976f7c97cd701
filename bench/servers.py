"""Server processes on free loopback ports, started as a user starts them and stopped in the end."""

import asyncio
import os
import re
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.wire import Address

ROOT = Path(__file__).parents[1]
FOLDPOINT = (sys.executable, "-c", "from app.cli import main; main()", "serve", "--port", "0")
#: As `app.cli.serve` runs it.
BARE = (
    sys.executable, "-m", "uvicorn", "bench.bare:application", "--factory", "--port", "0", "--loop", "uvloop",
    "--http", "httptools", "--ws", "none", "--no-access-log", "--no-server-header",
)  # fmt: skip

LISTENING = re.compile(rb"running on http://(127\.0\.0\.1):(\d+)")
START_SECONDS = 120
STOP_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Served:
    address: Address
    pid: int


class NotServed(RuntimeError):
    """The process ended, or did not say in time where it listens."""


@asynccontextmanager
async def serving(command: tuple[str, ...], token: str = "", **settings: str) -> AsyncIterator[Served]:
    """A server of this command; settings go into its environment."""
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, env={**os.environ, **settings}, stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    said: deque[bytes] = deque(maxlen=50)
    try:
        found = await asyncio.wait_for(_address(process.stderr, said), START_SECONDS)
        if found is None:
            raise NotServed(b"".join(said).decode(errors="replace"))
        draining = asyncio.create_task(_drain(process.stderr, said))
        try:
            yield Served(Address(*found, token), process.pid)
        finally:
            draining.cancel()
    finally:
        await _stop(process)


async def _address(output: asyncio.StreamReader, said: deque[bytes]) -> tuple[str, int] | None:
    async for line in output:
        said.append(line)
        if found := LISTENING.search(line):
            return found[1].decode(), int(found[2])
    return None


async def _drain(output: asyncio.StreamReader, said: deque[bytes]) -> None:
    """A full pipe would stop the server. What it complains of is shown."""
    async for line in output:
        said.append(line)
        if b"ERROR" in line or b"Traceback" in line:
            print(line.decode(errors="replace").rstrip(), file=sys.stderr)


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()
