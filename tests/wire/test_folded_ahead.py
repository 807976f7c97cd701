"""What a hosted write goes by is folded before the scope's lock is taken, under it what is new (server.md §5, §8)."""

import asyncio
from collections.abc import Callable, Coroutine
from operator import itemgetter
from typing import Any

import asyncpg
import httpx
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from app.services.projections import contexts, journals, run_ledgers
from app.services.projections.streams import MANY, Fold, Streams, Where
from app.services.projections.writes import LONG_BYTES
from app.sql import snapshots
from app.sql.entries import StreamKey
from app.sql.transactions import begun, reading
from foldpoint.journal.fold import RECENT
from foldpoint.projections import CONTEXT, JOURNAL, RUN_LEDGER, Projection
from tests.fixtures import journals as sessions
from tests.fixtures.contexts import put, write
from tests.fixtures.devices import NewDevice
from tests.fixtures.ledgers import EMPTY, Ledgers, event, long, numbered, record
from tests.fixtures.projections import carried, enqueue, number_of, put_message, read_stream, recorded
from tests.fixtures.server import RunningServer
from tests.storms.stored import held_scope, until_waiting
from tests.wire.answers import read

TOLD = numbered(long(MANY // 2))
NEXT = len(TOLD)
NEW = record(NEXT, event("context_built", turn_id="last", context=EMPTY))

Sent = Callable[[httpx.AsyncClient, str], Coroutine[Any, Any, httpx.Response]]


def appended(**more: Any) -> Sent:
    async def sent(client: httpx.AsyncClient, scope: str) -> httpx.Response:
        return await Ledgers(client, scope).append(NEW, **more)

    return sent


async def sealed(client: httpx.AsyncClient, scope: str) -> httpx.Response:
    return await Ledgers(client, scope).seal(NEXT - 1, 1)


async def put_again(client: httpx.AsyncClient, scope: str) -> httpx.Response:
    return await write(client, scope, put("removed"))


async def claimed(client: httpx.AsyncClient, scope: str) -> httpx.Response:
    return await sessions.claim(client, scope)


async def renamed(client: httpx.AsyncClient, scope: str) -> httpx.Response:
    return await sessions.append(client, scope, {"op": "rename", "from": "a", "to": "b"}, seen="now")


#: Each with its projection, and what its answer says.
CALLS: dict[str, tuple[Projection, Sent, Callable[[Any], object], object]] = {
    "append": (RUN_LEDGER, appended(), itemgetter("next_seq"), NEXT + 1),
    "append that seals": (RUN_LEDGER, appended(epoch=1, seal=True), itemgetter("sealed"), NEXT + 1),
    "seal": (RUN_LEDGER, sealed, itemgetter("sealed"), NEXT),
    "put": (CONTEXT, put_again, itemgetter("path"), "ops[0].message_id"),
    "claim": (JOURNAL, claimed, lambda told: told["entries"][0]["text"], "away"),
    "append of a journal": (JOURNAL, renamed, lambda told: sorted(told["seen"]), ["away", "mac"]),
}
ALL_BUT_THE_LAST = """
delete from entry where scope = $1 and projection = $2 and wall_ms <= (
    select wall_ms from entry where scope = $1 and projection = $2 order by wall_ms desc offset $3 limit 1)
"""


@pytest.mark.parametrize("name", CALLS)
async def test_what_was_there_before_a_write_is_not_read_under_the_lock(
    device: NewDevice, admin: httpx.AsyncClient, scope: str, server: RunningServer, engine_behind: AsyncEngine,
    name: str,
) -> None:  # fmt: skip
    projection, sent, said, expected = CALLS[name]
    away, mac = device("away"), device("mac")
    enqueue(away, "away")
    carried(away, CONTEXT.tag, {"session": "s", "op": "remove", "message_id": "removed"})
    await away.push()
    mac.wall_ms = away.wall_ms
    for n in range(MANY):
        enqueue(mac, f"{n}")
        put_message(mac, f"{n}", f"{n}", pos=n)
    for one in TOLD:
        recorded(mac, one)
    await mac.push()
    read(await Ledgers(admin, scope).acquire())
    number = await number_of(engine_behind, scope)
    async with held_scope(server.database_url, scope) as holding:
        call = asyncio.create_task(sent(admin, scope))
        await until_waiting(server.database_url, 1)
        await holding.execute(ALL_BUT_THE_LAST, number, projection.number, RECENT)
        await holding.execute("delete from entry_snapshot where scope = $1", number)
    assert said((await call).json()) == expected


LONG: dict[str, Fold[Any, Any]] = {"a journal": journals.FOLD, "a run": run_ledgers.FOLD, "a context": contexts.FOLD}


@pytest.mark.parametrize("name", LONG)
async def test_what_was_folded_ahead_is_gone_on_from_unless_something_came_below_it(
    device: NewDevice, scope: str, engine_behind: AsyncEngine, name: str
) -> None:
    fold, streams = LONG[name], Streams(engine_behind)
    mac, late = device("mac"), device("late")
    for n, told in enumerate(numbered(long(MANY // 2, "s"))):
        enqueue(mac, f"{n}")
        put_message(mac, f"{n}", f"{n}", pos=n)
        recorded(mac, told, "s")
    late.wall_ms += 5
    enqueue(late, "late")
    put_message(late, "late", "late")
    recorded(late, record(5, event("run_failed", "s", reason="late")), "s")
    await mac.push()
    number = await number_of(engine_behind, scope)
    ahead = (await read_stream(streams, number, fold, "s")).ahead
    enqueue(mac, "new")
    put_message(mac, "new", "new")
    recorded(mac, record(3 * (MANY // 2) + 1, event("run_finished", "s")), "s")
    before = None
    for each in (mac, late):
        await each.push()
        async with reading(engine_behind) as connection:
            where = Where("epoch", number, sealed=False)
            now = fold.told(await streams.go_on(await begun(connection), where, fold, "s", ahead))
        assert now == fold.told((await read_stream(streams, number, fold, "s")).now)
        assert now != before
        before = now


async def test_a_stream_is_long_by_its_entries_or_by_their_bytes(
    admin: httpx.AsyncClient, scope: str, database: asyncpg.Connection, engine_behind: AsyncEngine
) -> None:
    await write(admin, scope, put("short"))
    number = await number_of(engine_behind, scope)

    async def is_long(session: str) -> bool:
        return await snapshots.is_long(database, number, StreamKey.named(CONTEXT, session), MANY, LONG_BYTES)

    assert not await is_long("s")
    assert not await is_long("nobody's")
    large = put("large")
    large["message"]["body"]["text"] = "x" * LONG_BYTES
    read(await write(admin, scope, large))
    assert await is_long("s")
    read(await write(admin, scope, *(put(f"{n}") for n in range(MANY)), session="many"))
    assert await is_long("many")
