"""Peers from their published packages, in an environment of their own, on the same PostgreSQL and the same messages."""

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path

import orjson

from bench.corpus import Author, chat
from bench.crates import output_of
from bench.databases import at_database, execute
from bench.figures import APPENDS, READS, NotThere, Ratio, Sample
from bench.peers.loop import MARK
from bench.servers import ROOT
from bench.wire import Connection, ask_all, connections
from bench.world import Row, World, opened_scope, pushes, seconds

#: Messages of one call, the same for everybody.
AT_ONCE = 256
PAGE = 1_000
HOME = ROOT / "bench/.peers"
PINS = ROOT / "bench/peers.txt"
ATUIN_VERSION = "18.24.4"
ROUND_SECONDS, INSTALL_SECONDS = 300, 3_600


def against(peer: str) -> Row:
    """The row that measures us beside one peer."""
    return partial(_beside, peer=peer)


async def _beside(world: World, peer: str) -> AsyncGenerator[Sample, None]:
    """The peer's process answers a round, and the same messages are pushed here and read again."""
    name = f"bench_{peer}".replace("-", "_")
    await execute(world.database_url, f"create database {name}")
    try:
        command = await _command(peer, at_database(world.database_url, name))
        async with _Peer.running(command) as process, connections(world.server.address, 1) as (connection,):
            yield {}
            for number in count():
                bodies = list(Author("laptop", seed=number).bodies(chat, world.size.peer_batches, AT_ONCE))
                theirs = await process.round([_messages(body) for body in bodies])
                appends, reads = await _ours(world, connection, bodies)
                sample = {APPENDS[peer]: Ratio(appends, theirs["append"])}
                if "read" in theirs:
                    sample[READS[peer]] = Ratio(reads, theirs["read"])
                yield sample
    finally:
        await execute(world.database_url, f"drop database {name} with (force)")


def _messages(body: bytes) -> list[str]:
    """What a peer is given of our ops: the payloads alone."""
    return [orjson.dumps(op["payload"]).decode() for op in orjson.loads(body)]


async def _ours(world: World, connection: Connection, bodies: list[bytes]) -> tuple[float, float]:
    scope = await opened_scope(world, connection, "peers", "laptop")
    appending = await seconds(ask_all(connection, pushes(world, scope, "laptop", bodies)))
    messages = len(bodies) * AT_ONCE
    reading = await seconds(_read_all(world, connection, scope, messages))
    return messages / appending, messages / reading


async def _read_all(world: World, connection: Connection, scope: str, messages: int) -> None:
    """Page by page, and decoded, as a peer's read gives objects."""
    path = f"/v1/scopes/{scope}/ops?limit={PAGE}"
    read, after = 0, ""
    while read < messages:
        page = orjson.loads(await connection.ask(world.server.address.get(path + after)))
        assert page["ops"], page
        read, after = read + len(page["ops"]), f"&cursor={page['cursor']}"


async def _command(peer: str, database: str) -> tuple[str | Path, ...]:
    """The peer's process. Raises NotThere."""
    python = await _environment()
    module, *more = {"accordsync-16": ("accordsync", "16"), "accordsync": ("accordsync", str(AT_ONCE))}.get(
        peer, (peer,)
    )
    if peer == "atuin":
        more = [str(await _atuin())]
    return python, "-m", f"bench.peers.{module}_peer", database, *more


async def _environment() -> Path:
    """The peers' Python, made on first use and again when the pins change. Raises NotThere."""
    python, installed = HOME / "venv/bin/python", HOME / "installed.txt"
    if not installed.exists() or installed.read_text() != PINS.read_text():
        print("installing the peers", file=sys.stderr)
        HOME.mkdir(exist_ok=True)
        try:
            await output_of(Path(sys.executable), "-m", "venv", str(HOME / "venv"), limit=INSTALL_SECONDS)
            await output_of(python, "-m", "pip", "install", "--quiet", "-r", str(PINS), limit=INSTALL_SECONDS)
        except RuntimeError as error:
            raise NotThere(f"the peers could not be installed: {error}") from error
        installed.write_text(PINS.read_text())
    return python


async def _atuin() -> Path:
    """atuin-server, built once, which takes some minutes. Raises NotThere."""
    program = HOME / "atuin/bin/atuin-server"
    if not program.exists():
        if shutil.which("cargo") is None:
            raise NotThere("there is no cargo here")
        print("building atuin-server", file=sys.stderr)
        try:
            await output_of(
                Path("cargo"), "install", "atuin-server", "--locked", "--quiet", "--version", ATUIN_VERSION,
                "--root", str(HOME / "atuin"), limit=INSTALL_SECONDS,
            )  # fmt: skip
        except RuntimeError as error:
            raise NotThere(f"atuin-server could not be built: {error}") from error
    return program


class _Peer:
    """A peer's process, driven as `bench.peers.loop` says."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    @asynccontextmanager
    async def running(cls, command: tuple[str | Path, ...]) -> AsyncIterator["_Peer"]:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        peer = cls(process)
        try:
            await asyncio.wait_for(peer._answer(), ROUND_SECONDS)
            yield peer
        finally:
            await peer._stop()

    async def round(self, batches: list[list[str]]) -> dict[str, float]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(batches).encode() + b"\n")
        figures: dict[str, float] = orjson.loads(await asyncio.wait_for(self._answer(), ROUND_SECONDS))
        return figures

    async def _answer(self) -> str:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if line.startswith(MARK.encode()):
                return line.decode()[len(MARK) :]
        raise NotThere("the peer's process ended; see above")

    async def _stop(self) -> None:
        """Without anything more to read it ends by itself."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), 30)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
