"""Journal files in and out (journal.md §8.2): large ones, torn ones, again and again."""

import asyncio
from collections.abc import Callable
from typing import Any

import asyncpg
import httpx

from app.services.projections.importing_journals import LINES
from foldpoint.journal.fold import fold_file
from foldpoint.journal.lines import write_line
from foldpoint.journal.ops import read_journal_op
from tests.fixtures.devices import NewDevice
from tests.fixtures.journals import append, contents, import_file, message, path, queued, state
from tests.fixtures.projections import journal
from tests.fixtures.server import RunningServer
from tests.fixtures.vectors import text
from tests.wire.answers import read, refused

TS = "2026-03-01T12:00:00.000Z"


def line(op: Any) -> bytes:
    return write_line(read_journal_op(op), TS)


def file_of(*contents_: str) -> bytes:
    return b"".join(line(message(content)) for content in contents_)


async def exported(client: httpx.AsyncClient, scope: str, **params: str) -> bytes:
    response = await client.get(path(scope, "/export"), params={"session": "s", **params})
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/x-ndjson"
    return response.content


async def test_a_torn_file_is_taken_as_it_is_and_says_why(admin: httpx.AsyncClient, scope: str) -> None:
    data = b"\n" + file_of("one") + b'{"supercode_journal":2}\n\r\n  \n' + file_of("two")[:-20]
    report = read(await import_file(admin, scope, data))
    assert (report["stored"], report["duplicate"], report["skipped"]) == (3, 0, 2)
    assert [skipped["line"] for skipped in report["report"]] == [3, 6]
    assert all(skipped["detail"] for skipped in report["report"])
    found = await state(admin, scope)
    assert (contents(found), found["records"], found["skipped"]) == (["one"], 1, 2)
    assert fold_file(await exported(admin, scope)).to_json()["skipped"] == 2


async def test_a_file_that_has_grown_is_imported_whole_again(admin: httpx.AsyncClient, scope: str) -> None:
    read(await import_file(admin, scope, file_of("one", "one")))
    report = read(await import_file(admin, scope, file_of("one", "one", "one")))
    assert (report["stored"], report["duplicate"]) == (1, 2)
    assert contents(await state(admin, scope)) == ["one", "one", "one"]
    report = read(await import_file(admin, scope, file_of("one"), writer="other"))
    assert (report["stored"], report["duplicate"]) == (1, 0)


async def test_a_file_counts_in_what_is_in_it(device: NewDevice, scope: str) -> None:
    """Whoever wrote it saw nothing of the other devices."""
    mac = device("mac")
    for entry in (message("mac's"), queued("mac's")):
        journal(mac, entry)
    await mac.push()
    data = file_of("a", "b") + b"".join(
        line(op)
        for op in (
            {"op": "rewind", "to": 1},
            queued("a"),
            {"op": "dequeue", "queue": "steer", "count": 1},
            {"op": "checkpoint", "messages": 2},
        )
    )
    read(await import_file(mac.client, scope, data))
    found = await state(mac.client, scope)
    assert (contents(found), found["steer_queue"]) == (["mac's", "a"], ["mac's"])
    params = {"session": "s", "transcript_messages": "2", "author": "web"}
    assert read(await mac.client.get(path(scope, "/recovery"), params=params))["checkpoint_messages"] == 2


async def test_an_import_that_was_cut_short_goes_on(
    start_server: Callable[..., RunningServer], scope: str, database_url: str
) -> None:
    """A line that is too large stops it; what came before stays, and is not stored twice."""
    server = start_server(max_op_bytes="20000")
    names = [str(n) for n in range(2 * LINES + 7)]
    data = file_of(*names) + file_of("x" * 20_000) + file_of("after")
    async with server.client() as client:
        problem = refused(await import_file(client, scope, data), "too_large")
        assert (problem["stored"], problem["duplicate"], problem["line"]) == (2 * LINES, 0, len(names) + 1)
        server.kill()
    roomy = start_server()
    async with roomy.client() as client:
        report = read(await import_file(client, scope, data))
        assert (report["stored"], report["duplicate"]) == (9, 2 * LINES)
        assert contents(await state(client, scope)) == [*names, "x" * 20_000, "after"]
    connection = await asyncpg.connect(database_url)
    assert await connection.fetchval("select count(*) from op") == len(names) + 2
    await connection.close()


async def test_the_same_file_by_several_at_once_is_imported_once(admin: httpx.AsyncClient, scope: str) -> None:
    data = file_of(*(str(n) for n in range(3 * LINES)))
    reports = await asyncio.gather(*(import_file(admin, scope, data) for _ in range(3)))
    assert sum(read(report)["stored"] for report in reports) == 3 * LINES
    assert contents(await state(admin, scope)) == [str(n) for n in range(3 * LINES)]


async def test_a_small_limit_of_ops_is_kept_to(start_server: Callable[..., RunningServer], scope: str) -> None:
    async with start_server(max_ops_per_request="7").client() as client:
        assert read(await import_file(client, scope, file_of(*"abcdefghijklmnop")))["stored"] == 16


async def test_what_nests_too_deeply_for_an_op_is_carried_as_its_line(admin: httpx.AsyncClient, scope: str) -> None:
    deep = b'{"supercode_journal":1,"ts":"","op":"message","message":{"supercode_turn":1,"ts":"","role":"user",'
    deep += b'"content_parts":%b}}' % (b"[" * 125 + b"]" * 125)
    assert read(await import_file(admin, scope, deep))["skipped"] == 0
    found = await admin.get(path(scope), params={"session": "s"})
    assert b"[" * 125 in found.content
    assert fold_file(await exported(admin, scope)).to_json()["records"] == 1


async def test_an_exported_state_folds_to_what_several_devices_made(device: NewDevice, scope: str) -> None:
    mac, phone = device("mac"), device("phone")
    for n in range(4):
        journal(mac, message(f"mac {n}"))
        journal(phone, message(f"phone {n}"))
    journal(mac, {"op": "rewind", "to": 2}, seen={})
    journal(phone, queued("go"))
    journal(phone, {"op": "rename", "from": "s", "to": "trip"})
    await mac.push()
    await phone.push()
    found = await state(mac.client, scope)
    file = fold_file(await exported(mac.client, scope, form="state")).to_json()
    for name in ("messages", "undo_stack", "steer_queue", "renames", "checkpoint_messages"):
        assert text(file[name]) == text(found[name])
    records = await exported(mac.client, scope)
    assert len(records.splitlines()) == len(mac.ops) + len(phone.ops)
    read(await import_file(mac.client, scope, records, session="copy"))
    assert (await state(mac.client, scope, "copy"))["records"] == len(mac.ops) + len(phone.ops)


async def test_a_long_session_is_exported_whole(admin: httpx.AsyncClient, scope: str) -> None:
    """More than is kept in memory, a payload too large for its page among it."""
    large = "x" * 50_000
    data = file_of(*(f"{n} {large}" for n in range(120)))
    read(await import_file(admin, scope, data))
    for form in ("records", "state"):
        lines = (await exported(admin, scope, form=form)).splitlines()
        assert len([one for one in lines if large.encode() in one]) == 120


async def test_what_was_appended_and_imported_is_one_session(admin: httpx.AsyncClient, scope: str) -> None:
    read(await append(admin, scope, message("first")))
    read(await import_file(admin, scope, file_of("second")))
    assert contents(await state(admin, scope)) == ["first", "second"]


async def test_a_question_that_names_no_session_or_writer_is_refused(admin: httpx.AsyncClient, scope: str) -> None:
    for more, where in (({"session": ""}, "query.session"), ({"writer": "a b"}, "query.writer")):
        assert refused(await import_file(admin, scope, b"", **more), "invalid_request")["path"] == where
    refused(await admin.get(path(scope)), "not_found")
