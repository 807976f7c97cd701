"""Session journals of a sealed scope whose owner gave its keys: the same, and gone once it is locked (server.md §9)."""

from typing import Any

import asyncpg
import httpx
import pytest

from foldpoint.journal.fold import fold_journal
from foldpoint.state import record_of
from tests.fixtures.journals import append, claim, contents, import_file, message, path, queued, state
from tests.fixtures.projections import enqueue, journal
from tests.fixtures.sealing import Sealing, delete_keys, folded_ops, owner, put_keys
from tests.fixtures.vectors import text
from tests.wire.answers import read, refused


@pytest.fixture
async def mac(admin: httpx.AsyncClient, scope: str) -> Sealing:
    """A device that seals, and its scope unlocked."""
    mac = Sealing(admin, scope, "mac")
    for word in ("one", "two"):
        enqueue(mac, word)
    journal(mac, message("said"))
    journal(mac, {"op": "rename", "from": "s", "to": "trip"})
    await mac.push()
    read(await put_keys(admin, scope))
    return mac


async def test_what_is_opened_is_read_appended_to_and_claimed(mac: Sealing) -> None:
    client, scope = mac.client, mac.scope
    expected = fold_journal(sorted(map(record_of, folded_ops(mac.ops, owner())))).to_json()
    found = await state(client, scope)
    assert text({name: found[name] for name in expected}) == text(expected)
    answer = read(await append(client, scope, message("more"), {"op": "rewind", "to": 1}, seen="now"))
    assert all(op["payload"].keys() == {"car_enc", "nonce", "ct"} for op in answer["ops"])
    assert contents(await state(client, scope)) == ["said"]
    answer = read(await claim(client, scope, key="k"))
    assert [entry["text"] for entry in answer["entries"]] == ["one"]
    assert answer["op"]["payload"].keys() == {"car_enc", "nonce", "ct"}
    assert read(await claim(client, scope, key="k")) == answer
    assert read(await import_file(client, scope, b"{"))["skipped"] == 1
    named = read(await client.get(path(scope), params={"handle": "trip"}))
    assert named["journal"]["session"] == "s"


async def test_locking_takes_all_of_it_away_and_unlocking_gives_it_back(
    mac: Sealing, database: asyncpg.Connection
) -> None:
    """What was handed out is in the sealed ops, so it is not handed out again."""
    client, scope = mac.client, mac.scope
    read(await claim(client, scope, key="k"))
    before = await state(client, scope)
    read(await delete_keys(client, scope))
    number = await database.fetchval("select id from scope where slug = $1", scope)
    for table in ("entry", "entry_stream", "entry_snapshot", "journal_claim", "idempotency"):
        assert await database.fetchval(f"select count(*) from {table} where scope = $1", number) == 0, table
    for params in ({}, {"session": "s"}, {"handle": "trip"}):
        refused(await client.get(path(scope), params=params), "sealed_scope", 503)
    refused(await claim(client, scope, key="k"), "sealed_scope", 409)
    refused(await append(client, scope, queued("x")), "sealed_scope", 409)
    refused(await import_file(client, scope, b""), "sealed_scope", 409)
    read(await put_keys(client, scope))
    assert await state(client, scope) == before
    said_again = await _one_again(mac)
    assert [entry["text"] for entry in read(await claim(client, scope, 9))["entries"]] == ["two"], said_again


async def _one_again(mac: Sealing) -> Any:
    """The first entry once more, so that it waits again in the fold."""
    mac.wall_ms = read(await mac.client.get(path(mac.scope)))["journals"][0]["last"]["wall_ms"] + 1
    again = enqueue(mac, "one")
    await mac.push()
    assert (await state(mac.client, mac.scope))["steer_queue"] == ["one"]
    return again
