"""Long runs: what a snapshot settles, pages of statuses, files in parts, and collected ops (server.md §8)."""

from collections.abc import Callable
from typing import Any

import asyncpg
import httpx
import orjson
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from app.services.projections.streams import MANY
from app.services.verification.verifying import verify
from tests.fixtures.devices import NewDevice, collect
from tests.fixtures.ledgers import AGENT, Ledgers, called, event, id_of, long, numbered, record
from tests.fixtures.projections import number_of, recorded
from tests.fixtures.server import RunningServer
from tests.wire.answers import read, refused

TURNS = MANY // 2
TOLD = numbered(long(TURNS))


@pytest.fixture
def ledgers(admin: httpx.AsyncClient, scope: str) -> Ledgers:
    return Ledgers(admin, scope)


async def all_statuses(ledgers: Ledgers, limit: int) -> list[Any]:
    found, cursor = [], None
    while True:
        page = read(await ledgers.get("/statuses", limit=limit, **({} if cursor is None else {"cursor": cursor})))
        assert page["statuses"]
        found += page["statuses"]
        if (cursor := page["cursor"]) is None:
            return found


async def test_of_a_long_run_the_last_statuses_are_told_and_all_of_them_by_page(
    ledgers: Ledgers, device: NewDevice, database: asyncpg.Connection, engine_behind: AsyncEngine
) -> None:
    mac, phone = device("mac"), device("phone", wall_ms=device("mac").wall_ms + 10 * len(TOLD))
    for one in TOLD:
        recorded(mac, one)
    await mac.push()
    first = read(await ledgers.get())
    assert first["settled"] == len(TOLD) - 64
    assert len(first["statuses"]) == 64
    assert read(await ledgers.get()) == first
    number = await number_of(engine_behind, ledgers.scope)
    counted = "select count(*) from entry_snapshot where scope = $1"
    assert await database.fetchval(counted, number) == 1
    lost = recorded(phone, record(3, event("run_finished")))
    twice = recorded(phone, record(1, TOLD[1]["event"], at=9))
    await phone.push()
    assert read(await ledgers.get()) == first | {"entries": len(TOLD) + 2}
    assert await database.fetchval(counted, number) == 1
    payloads: list[Any] = [lost.payload, twice.payload]
    for limit in (400, 10_000):
        statuses = {one["id"]: one for one in await all_statuses(ledgers, limit)}
        assert len(statuses) == len(TOLD) + 2
        assert statuses[payloads[0]["id"]]["status"] == "illegal"
        assert statuses[payloads[1]["id"]]["winner"] == id_of(TOLD[1], "mac")
    assert [fault async for fault in verify(engine_behind, number)] == []
    before = read(await ledgers.get("/readback"))
    assert (before["next_seq"], len(before["entries"])) == (len(TOLD), TURNS)
    assert set(await collect([mac, phone])) == {"mac", "phone"}
    assert read(await ledgers.get("/readback")) == before
    assert [one["id"] for one in read(await ledgers.get("/conflicts"))["conflicts"]] == [payloads[0]["id"]]


async def test_what_is_appended_far_below_is_told_its_status(ledgers: Ledgers) -> None:
    read(await ledgers.append(*TOLD))
    read(await ledgers.get())
    rival = record(1, event("context_built", turn_id="tB", context=called()[1]["context"]))
    answer = read(await ledgers.append(rival, TOLD[2], record(5, event("run_finished"))))
    assert [one["status"] for one in answer["statuses"]] == ["superseded", "folded", "illegal"]
    assert answer["statuses"][0]["winner"] == id_of(TOLD[1])
    read(await ledgers.acquire())
    problem = refused(await ledgers.append(rival, epoch=1, seal=True), "seal_mismatch")
    assert (problem["seq"], problem["expected"]) == (1, id_of(TOLD[1]))
    assert read(await ledgers.append(TOLD[2], epoch=1, seal=True))["sealed"] == 3


async def test_an_early_record_makes_a_long_run_another(ledgers: Ledgers, device: NewDevice) -> None:
    read(await ledgers.append(*TOLD))
    assert read(await ledgers.get())["state"]["next_seq"] == len(TOLD)
    early = device("mac")
    recorded(early, record(5, event("run_failed", reason="no")))
    await early.push()
    told = read(await ledgers.get())
    assert told["state"]["phase"] == {"phase": "failed", "reason": "no"}
    lost = read(await ledgers.get("/conflicts"))["conflicts"]
    assert len(lost) == len(TOLD) - 5


LINES = [orjson.dumps(one) for one in TOLD]


async def test_a_file_is_imported_as_it_is_on_disk_and_only_once(ledgers: Ledgers) -> None:
    bad = [b"", b"no json", orjson.dumps(record(9, event("run_finished", "other")))]
    torn = LINES[40][:-9]
    report = read(await ledgers.import_(b"\n".join([*LINES[:40], *bad, LINES[3], torn])))
    assert {name: report[name] for name in ("stored", "duplicate", "skipped")} == {
        "stored": 41, "duplicate": 0, "skipped": 3,
    }  # fmt: skip
    assert [(line["line"], line["error_class"]) for line in report["report"]] == [
        (42, "syntax"), (43, "foreign_run"), (45, "syntax"),
    ]  # fmt: skip
    again = read(await ledgers.import_(b"\n".join([*LINES[:40], *bad, LINES[3], *LINES[40:]])))
    assert (again["stored"], again["duplicate"], again["skipped"]) == (len(TOLD) - 40, 41, 2)
    told = read(await ledgers.get())
    assert (told["state"]["next_seq"], told["entries"]) == (len(TOLD), len(TOLD) + 1)
    assert (await ledgers.get("/export")).content.count(b"\n") == len(TOLD)


async def test_what_cannot_be_imported_says_why(ledgers: Ledgers) -> None:
    assert refused(await ledgers.import_(b"", writer="a b"), "invalid_request")["path"] == "query.writer"
    assert refused(await ledgers.import_(b"", run="\u2003"), "invalid_request")["path"] == "query.run"
    refused(await ledgers.get(), "not_found")
    assert read(await ledgers.import_(b"\n"))["stored"] == 0


async def test_an_import_that_ends_early_says_how_far_it_came(
    start_server: Callable[..., RunningServer], scope: str
) -> None:
    server = start_server(max_op_bytes="3000", max_ops_per_request="4")
    async with server.client() as client:
        ledgers = Ledgers(client, scope)
        large = orjson.dumps(record(8, event("run_failed", reason="x" * 3_000)))
        problem = refused(await ledgers.import_(b"\n".join([*LINES[:8], large, *LINES[8:12]])), "too_large")
        assert problem["stored"] == 8
        assert read(await ledgers.import_(b"\n".join(LINES[:12])))["duplicate"] == 8
        refused(await ledgers.append(*TOLD[:5]), "too_many_ops")
        read(await ledgers.acquire(agent=AGENT))
        assert read(await ledgers.append(record(0, TOLD[0]["event"]), epoch=1))["next_seq"] == 12
