"""Every list's cursor carries the server epoch and its scope (server.md §4, §10), whatever the list."""

from collections.abc import Callable
from typing import Any

import asyncpg
import httpx
import pytest

from app.services.reading.cursors import decode, encode
from tests.fixtures.devices import Device, checkpoint_text
from tests.fixtures.server import RunningServer
from tests.wire.answers import read, refused

LISTS: dict[str, dict[str, str]] = {
    "ops": {},
    "log/knowledge": {},
    "registries/config": {},
    "conversations": {},
    "committed-runs": {"agent": "ada"},
    "checkpoints": {},
}
ENDS = ("before", "after")


async def filled(client: httpx.AsyncClient, scope: str) -> Device:
    """A device that gave every list more than one entry."""
    mac = Device(client, scope, "mac")
    for number in range(3):
        mac.write("knowledge", {"id": f"f{number}"})
        mac.write("registry:config", {"id": f"c{number}"})
        mac.say("x", conversation=f"c{number}")
        mac.say("x", conversation="long")
        mac.intend(f"r{number}", "committed")
    await mac.push()
    for stop in (4, 8):
        read(await client.put(f"/sync/{scope}/checkpoints", content=checkpoint_text(mac.ops[:stop])))
    return mac


async def ask(client: httpx.AsyncClient, scope: str, path: str, **params: Any) -> httpx.Response:
    return await client.get(f"/v1/scopes/{scope}/{path}", params={**LISTS.get(path, {}), "limit": 1, **params})


async def said(client: httpx.AsyncClient, scope: str, **place: str) -> httpx.Response:
    return await ask(client, scope, "transcript", conversation="long", **place)


async def cursors_of(client: httpx.AsyncClient, scope: str) -> dict[str, str]:
    """A cursor of each list and of each end of a transcript."""
    found = {path: read(await ask(client, scope, path))["cursor"] for path in LISTS}
    last = read(await said(client, scope))
    found["before"] = last["before"]
    found["after"] = read(await said(client, scope, before=last["before"]))["after"]
    return found


async def use(client: httpx.AsyncClient, scope: str, name: str, cursor: str) -> httpx.Response:
    if name in ENDS:
        return await said(client, scope, **{name: cursor})
    return await ask(client, scope, name, cursor=cursor)


async def test_every_cursor_goes_on_in_its_scope_and_epoch(admin: httpx.AsyncClient, scope: str) -> None:
    await filled(admin, scope)
    for name, cursor in (await cursors_of(admin, scope)).items():
        assert read(await use(admin, scope, name, cursor)), name


async def test_a_cursor_of_another_epoch_or_scope_is_gone_and_garbage_is_none(
    admin: httpx.AsyncClient, scope: str
) -> None:
    await filled(admin, scope)
    for name, cursor in (await cursors_of(admin, scope)).items():
        epoch, number, place = decode(cursor)
        gone = {
            "server_restored": encode(["0" * 32, number, place]),
            "cursor_gone": encode([epoch, number + 1_000_000, place]),
        }
        for code, text in gone.items():
            response = await use(admin, scope, name, text)
            problem = refused(response, code)
            assert (response.headers["cache-control"], problem["cursor"]) == ("no-store", None), name
            assert problem["advice"]
        for text in (encode(place), encode([epoch, number]), encode([epoch, number, [[]]]), encode([1, number, place])):
            refused(await use(admin, scope, name, text), "invalid_cursor")


async def test_R06_a_new_server_epoch_counts_at_once_in_every_cursor_and_header(
    start_server: Callable[..., RunningServer], database_url: str, scope: str
) -> None:
    """It is read where the token is: a process that goes on through a restore gives no old one."""
    async with start_server().client() as client:
        mac = await filled(client, scope)
        old = await cursors_of(client, scope)
        connection = await asyncpg.connect(database_url)
        await connection.execute("update server set epoch = $1", "f" * 32)
        await connection.close()
        mac.facts(1)
        pushed = await mac.offer(mac.ops[-1:])
        assert (pushed.json()["accepted"], pushed.headers["foldpoint-epoch"]) == (1, "f" * 32)
        for name, cursor in old.items():
            response = await use(client, scope, name, cursor)
            refused(response, "server_restored")
            assert (response.headers["foldpoint-epoch"], response.headers["cache-control"]) == ("f" * 32, "no-store")
        for name, cursor in (await cursors_of(client, scope)).items():
            assert read(await use(client, scope, name, cursor)), name
        assert (await client.get("/healthz")).headers["foldpoint-epoch"] == "f" * 32


@pytest.mark.parametrize("path", ["/roster", "/state/hash", "/nowhere"])
async def test_a_refusal_carries_the_epoch_too(
    server: RunningServer, stranger: httpx.AsyncClient, scope: str, path: str
) -> None:
    async with server.client() as admin:
        epoch = (await admin.get("/healthz")).headers["foldpoint-epoch"]
    response = await stranger.get(f"/v1/scopes/{scope}{path}")
    assert response.status_code in (401, 404)
    assert response.headers["foldpoint-epoch"] == epoch
