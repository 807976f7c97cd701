"""Ids of 64 KiB, also where they travel in a URL (server.md §4)."""

from urllib.parse import quote

import orjson
import pytest

from tests.fixtures.devices import NewDevice
from tests.fixtures.server import RunningServer
from tests.wire.one_connection import connected

LONG = {"ascii": "a" * 64 * 1024, "umlauts": "ä" * 32 * 1024, "zeroes": "\0" * 64 * 1024}


def body_of(answer: bytes) -> dict[str, object]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), head
    read: dict[str, object] = orjson.loads(body)
    return read


@pytest.mark.parametrize("name", LONG.values(), ids=LONG)
async def test_conversations_agents_and_runs_of_64_kib_are_found(
    device: NewDevice, server: RunningServer, scope: str, name: str
) -> None:
    mac = device("mac")
    mac.say("hello", conversation=name)
    mac.intend(name, "committed", agent=name)
    await mac.push()
    asked = quote(name)
    async with connected(server) as connection:
        said = body_of(await connection.ask(f"GET /v1/scopes/{scope}/resume?conversation={asked}"))
        assert said["messages"] == [{"role": "user", "content": "hello"}]
        run = body_of(await connection.ask(f"GET /v1/scopes/{scope}/committed-run?agent={asked}&run={asked}"))
        assert run["status"] == "committed"
        assert body_of(await connection.ask("GET /healthz"))


async def test_a_url_that_no_ids_need_is_refused(server: RunningServer, scope: str) -> None:
    async with connected(server) as connection:
        answer = await connection.ask(f"GET /v1/scopes/{scope}/resume?conversation={'a' * 500_000}")
    assert answer.startswith(b"HTTP/1.1 400 ")
