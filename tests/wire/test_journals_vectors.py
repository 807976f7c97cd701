"""Every journal of the vectors through the API, imported, appended or pushed, is the crate's state (§8.5)."""

from collections.abc import Iterator
from itertools import pairwise
from random import Random  # noqa: TID251 - seeded: a failure can be run again
from typing import Any

import httpx
import orjson

from foldpoint.canonical import read_json
from foldpoint.journal.lines import read_lines
from tests.fixtures.devices import NewDevice, body_of
from tests.fixtures.journal_vectors import FOLD_FILES, append, golden
from tests.fixtures.journals import check_wire, import_file, path, state
from tests.wire.answers import read, refused


def readable(case: Any) -> dict[str, Any]:
    return {**case["expected"], "skipped": 0}


def batches(items: list[Any], seed: str) -> Iterator[list[Any]]:
    """Some at a time, always the same for a seed."""
    dice = Random(seed)
    cuts = sorted(dice.randrange(len(items) + 1) for _ in range(dice.randrange(4)))
    return (items[start:end] for start, end in pairwise([0, *cuts, len(items)]) if start < end)


def ops_of(case: Any) -> list[Any]:
    return [line.text for line in read_lines(case["text"].encode()) if line.op]


@golden(*FOLD_FILES)
async def test_an_imported_file_is_the_crates_state(case: Any, admin: httpx.AsyncClient, scope: str) -> None:
    data = case["text"].encode()
    report = read(await import_file(admin, scope, data))
    expected = case["expected"]
    assert (report["stored"], report["skipped"]) == (expected["records"] + expected["skipped"], expected["skipped"])
    found = await state(admin, scope)
    check_wire(found, expected)
    again = read(await import_file(admin, scope, data))
    assert again == {**report, "stored": 0, "duplicate": report["stored"]}
    assert await state(admin, scope) == found
    exported = await admin.get(path(scope, "/export"), params={"session": "s"})
    read(await import_file(admin, scope, exported.content, session="exported"))
    check_wire(await state(admin, scope, "exported"), expected)


@golden(*FOLD_FILES)
async def test_appended_entries_are_the_crates_state(case: Any, admin: httpx.AsyncClient, scope: str) -> None:
    read(await import_file(admin, scope, b""))
    for number, batch in enumerate(batches(ops_of(case), case["id"])):
        seen: dict[str, Any] = {"seen": "now"} if number % 3 else {}
        if number % 3 == 1:
            seen = {"seen": (await state(admin, scope))["seen"]}
        body = b'{"writer":"web","session":"s","entries":[%b],%b' % (
            b",".join(line.encode() for line in batch),
            orjson.dumps({**seen, "x": 0})[1:],
        )
        read(await admin.post(path(scope, "/append"), content=body))
    check_wire(await state(admin, scope), readable(case))


@golden(*FOLD_FILES)
async def test_ops_that_a_device_pushes_are_the_crates_state(case: Any, device: NewDevice, scope: str) -> None:
    mac = device("mac")
    read(await import_file(mac.client, scope, b""))
    ops = [append(mac.log, mac.wall_ms, read_json(line.encode()), n) for n, line in enumerate(ops_of(case))]
    for batch in batches(ops, case["id"]):
        response = await mac.client.post(f"{mac.path}/ops", content=body_of(batch))
        assert response.json() == {"accepted": len(batch), "deduped": 0}
        await state(mac.client, scope)
    check_wire(await state(mac.client, scope), readable(case))


@golden("bytes.json")
async def test_a_file_is_utf_8_throughout_or_refused(case: Any, admin: httpx.AsyncClient, scope: str) -> None:
    response = await import_file(admin, scope, bytes.fromhex(case["bytes_hex"]))
    if "ok" in case["expected"]:
        read(response)
        check_wire(await state(admin, scope), case["expected"]["ok"])
        return
    problem = refused(response, "invalid_request")
    assert problem["path"] == "body"
    assert "not UTF-8 at byte" in problem["detail"]
    refused(await admin.get(path(scope)), "not_found")


@golden("live.json")
async def test_a_journal_of_a_real_run_is_its_state(case: Any, admin: httpx.AsyncClient, scope: str) -> None:
    read(await import_file(admin, scope, case["text"].encode()))
    check_wire(await state(admin, scope), case["expected"])


@golden("resume.json")
async def test_a_session_is_recovered_as_in_the_harness(case: Any, admin: httpx.AsyncClient, scope: str) -> None:
    """At the first opening with a journal; what opening it appends is appended here too, and it is opened again."""
    read(await import_file(admin, scope, (case["journal"] or "").encode()))
    journal = case["journal"] or ""
    for opened in case["opens"]:
        params = {"session": "s", "transcript_messages": str(opened["history_len_before"])}
        found = read(await admin.get(path(scope, "/recovery"), params=params))
        if case["config"]["persist"]:
            assert len(found["messages"]) == opened["recovered_messages"]
            assert len(found["undo_stack"]) == opened["restored_rewinds"]
            if case["config"]["queue_persist"]:
                assert len(found["steer_queue"]) + len(found["follow_up_queue"]) == opened["restored_queue"]
        journal += opened["journal_appended"]
        read(await import_file(admin, scope, journal.encode()))
