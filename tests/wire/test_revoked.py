"""A token that is revoked while its request runs (server.md §9): streams break, and nothing more is written for it."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from urllib.parse import quote

import asyncpg
import pytest

from app.sql.scopes import WHOLE
from foldpoint.checkpoint import checkpoint_from_ops
from tests.fixtures.devices import Device, NewDevice, checkpoint_text
from tests.fixtures.server import RunningServer
from tests.fixtures.tokens import Issued, issue_token, revoke_token
from tests.storms.stored import held_scope, until, until_waiting
from tests.wire.answers import read, refused

#: More than the buffers between a server and a client that does not read can hold.
LARGE = 24
ENDS_WITHIN_S = 5
LAST_CHUNK = b"0\r\n\r\n"
#: The frontier of everything, as a query has it.
HEAD = quote(f'{{"mac":{LARGE - 1}}}')


class Stream:
    """An answer of which so far the head is read."""

    def __init__(self, head: bytes, reader: asyncio.StreamReader) -> None:
        self.head, self._reader = head, reader

    @property
    def request_id(self) -> str:
        lines = [line.split(b": ", 1) for line in self.head.split(b"\r\n")[1:] if line]
        return {name.lower(): value.decode() for name, value in lines}[b"x-request-id"]

    async def is_whole(self) -> bool:
        """Read on; whether the answer comes to its end."""
        rest = await self._reader.read(-1)
        if b"transfer-encoding: chunked" in self.head.lower():
            return rest.endswith(LAST_CHUNK)
        length = int(self.head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return len(rest) == length


@asynccontextmanager
async def opened(server: RunningServer, line: str, token: Issued) -> AsyncIterator[Stream]:
    """Ask, and read no more than the head of the answer, with buffers that are soon full."""
    host, _, port = server.base.removeprefix("http://").partition(":")
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    plain.setblocking(False)
    await asyncio.get_running_loop().sock_connect(plain, (host, int(port)))
    reader, writer = await asyncio.open_connection(sock=plain, limit=4096)
    head = (f"{line} HTTP/1.1", "Host: f", f"Authorization: Bearer {token.secret}", "Connection: close")
    writer.write("\r\n".join([*head, "Content-Length: 2", "", "{}"]).encode())
    try:
        yield Stream(await reader.readuntil(b"\r\n\r\n"), reader)
    finally:
        writer.close()


@pytest.fixture
async def large(device: NewDevice) -> Device:
    """A device of which everything is large: its ops, its state and its checkpoint."""
    mac = device("mac")
    for number in range(LARGE):
        mac.write("knowledge", {"id": str(number), "text": "x" * 1_000_000})
        await mac.push()
    read(await mac.client.put(f"/sync/{mac.scope}/checkpoints", content=checkpoint_text(mac.ops)))
    return mac


def streams(mac: Device) -> dict[str, str]:
    own = checkpoint_from_ops(mac.ops).checkpoint_hash
    return {
        "a pull": f"POST /sync/{mac.scope}/devices/phone/pull",
        "the latest checkpoint": f"GET /sync/{mac.scope}/checkpoints/latest",
        "a checkpoint": f"GET /v1/scopes/{mac.scope}/checkpoints/{own}",
        "the state": f"GET /v1/scopes/{mac.scope}/state",
        "a past state": f"GET /v1/scopes/{mac.scope}/state?at={HEAD}",
        "a difference": f"GET /v1/scopes/{mac.scope}/diff?from=%7B%7D&to={HEAD}",
    }


async def test_R20_open_streams_break_within_five_seconds_though_nobody_reads_them(
    server: RunningServer, large: Device
) -> None:
    """And those of another token go on."""
    revoked, other = [await issue_token(server.database_url, "device", large.scope) for _ in range(2)]
    for case, line in streams(large).items():
        async with opened(server, line, revoked) as stream, opened(server, line, other) as standing:
            await revoke_token(server.database_url, revoked)

            async def is_broken(request_id: str) -> bool:
                return any(request_id in text and "revoked" in text for text in server.log)

            async with asyncio.timeout(ENDS_WITHIN_S):
                await until(partial(is_broken, stream.request_id))
            assert not await stream.is_whole(), case
            assert await standing.is_whole(), case
        revoked = await issue_token(server.database_url, "device", large.scope)


async def test_a_stall_of_the_database_for_three_seconds_ends_no_stream_of_a_standing_token(
    server: RunningServer, large: Device, token: Issued, database: asyncpg.Connection
) -> None:
    async with opened(server, streams(large)["a pull"], token) as stream:
        async with database.transaction():
            await database.execute("lock table token in access exclusive mode")
            await database.execute("select pg_sleep(3.3)")
        assert await stream.is_whole()


async def test_a_stream_whose_token_cannot_be_checked_ends_as_soon_and_the_log_says_why(
    server: RunningServer, large: Device, token: Issued, database: asyncpg.Connection
) -> None:
    async with opened(server, streams(large)["a pull"], token) as stream:

        async def is_broken() -> bool:
            return any(stream.request_id in text and "could not be checked" in text for text in server.log)

        async with database.transaction(), asyncio.timeout(ENDS_WITHIN_S):
            await database.execute("lock table token in access exclusive mode")
            await until(is_broken)
        assert not await stream.is_whole()


async def test_questions_whether_the_database_answers_keep_no_look_at_the_tokens_waiting(
    server: RunningServer, large: Device, token: Issued, database: asyncpg.Connection
) -> None:
    """One after the other comes, and each waits as long as it may."""
    asks = []
    async with opened(server, streams(large)["a pull"], token) as stream, server.client() as client:
        async with database.transaction():
            await database.execute("lock table alembic_version in access exclusive mode")
            for _ in range(60):
                asks.append(asyncio.create_task(client.get("/readyz")))
                await database.execute("select pg_sleep(0.1)")
        for response in await asyncio.gather(*asks):
            assert response.status_code in (200, 503)
        assert await stream.is_whole()


@pytest.fixture
async def token(server: RunningServer, scope: str) -> Issued:
    return await issue_token(server.database_url, "device", scope)


async def test_a_checkpoint_is_not_stored_for_a_token_that_was_revoked_meanwhile(
    server: RunningServer, device: NewDevice, token: Issued, database: asyncpg.Connection
) -> None:
    mac = device("mac")
    mac.facts(3)
    await mac.push()
    text, url = checkpoint_text(mac.ops), f"/sync/{mac.scope}/checkpoints"
    async with server.client(token.secret) as client:
        async with database.transaction():
            await database.execute("lock table checkpoint in share row exclusive mode")
            putting = asyncio.create_task(client.put(url, content=text))
            await until_waiting(server.database_url, 1)
            await revoke_token(server.database_url, token)
        refused(await putting, "unauthorized")
    assert read(await mac.client.get(f"/v1/scopes/{mac.scope}/checkpoints"))["checkpoints"] == []
    assert read(await mac.client.put(url, content=text)) is True


async def test_nothing_is_collected_for_a_token_that_was_revoked_meanwhile(
    server: RunningServer, device: NewDevice, token: Issued
) -> None:
    mac = device("mac")
    mac.facts(3)
    await mac.push()
    read(await mac.client.put(f"/sync/{mac.scope}/checkpoints", content=checkpoint_text(mac.ops)))
    await mac.ack()
    async with server.client(token.secret) as client:
        async with held_scope(server.database_url, mac.scope):
            collecting = asyncio.create_task(client.post(f"/sync/{mac.scope}/gc"))
            await until_waiting(server.database_url, 1)
            await revoke_token(server.database_url, token)
        refused(await collecting, "unauthorized")
    assert read(await mac.client.get(f"/v1/scopes/{mac.scope}/"))["ops"] == 3
    assert read(await mac.client.post(f"/sync/{mac.scope}/gc"))["dropped"] == {"mac": 3}


@pytest.mark.parametrize("call", ["checkpoints", "gc"])
async def test_nothing_is_made_or_trimmed_for_a_token_that_was_revoked_meanwhile(
    server: RunningServer, device: NewDevice, scope: str, call: str
) -> None:
    """The call waits for another's work on the scope; when its turn comes, its token is nobody's."""
    mac = device("mac")
    for number in range(3):
        mac.say(f"turn {number}", timestamp=number)
    await mac.push()
    await mac.ack()
    read(await mac.client.post(f"/v1/scopes/{scope}/gc"))
    policy = {"rules": {"conversation": {"last_n": {"n": 1}}}, "default_rule": "keep_all"}
    read(await mac.client.put(f"/v1/scopes/{scope}/retention", json=policy))
    mac.say("later")
    await mac.push()
    before = read(await mac.client.get(f"/v1/scopes/{scope}/checkpoints"))
    token = await issue_token(server.database_url, "admin")
    connection = await asyncpg.connect(server.database_url)
    async with server.client(token.secret) as client:
        async with connection.transaction():
            await connection.execute("select pg_advisory_xact_lock($1, id) from scope where slug = $2", WHOLE, scope)
            asked = asyncio.create_task(client.post(f"/v1/scopes/{scope}/{call}", timeout=60))
            await until_waiting(server.database_url, 1)
            await revoke_token(server.database_url, token)
        refused(await asked, "unauthorized")
    await connection.close()
    assert read(await mac.client.get(f"/v1/scopes/{scope}/checkpoints")) == before
    turns = read(await mac.client.get(f"/v1/scopes/{scope}/transcript", params={"conversation": "c"}))["turns"]
    assert len(turns) == 4
