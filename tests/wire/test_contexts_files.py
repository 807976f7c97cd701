"""Contexts as files: exports taken in once, and checkpoints of the original kernel (stored-message.md §5, §11)."""

import asyncio
import re
from typing import Any

import httpx
import orjson

from foldpoint.canonical import canonical, read_json
from foldpoint.stored_message.checkpoint import blank_checkpoint
from foldpoint.stored_message.context import restore_context
from foldpoint.stored_message.context_vm import decode_context_vm, empty_context_vm
from foldpoint.stored_message.message import decode_message
from tests.fixtures.contexts import ask, bring, move, put, remove, write
from tests.fixtures.server import RunningServer
from tests.fixtures.stored_message_vectors import edited, golden, vector_file
from tests.fixtures.tokens import ClientOf
from tests.wire.answers import read, refused


def without_place(held: dict[str, object]) -> dict[str, object]:
    """A context without the op that it was last changed by."""
    return {name: value for name, value in held.items() if name != "last"}


async def test_an_export_is_imported_once(admin: httpx.AsyncClient, scope: str) -> None:
    read(await write(admin, scope, put("a"), put("b"), put("gone"), move("a", "system", 3), remove("gone")))
    before = read(await ask(admin, scope))
    lines = (await ask(admin, scope, "/export")).content
    assert [read_json(line) for line in lines.splitlines()][3] == move("a", "system", 3)
    torn = lines + b'\n{"op":"put"\n{"op":"remove","op":"remove","message_id":"b"}\n{"op":"put","mess'
    first = read(await bring(admin, scope, torn, "t"))
    assert (first["stored"], first["duplicate"], first["skipped"]) == (5, 0, 3)
    assert [one["line"] for one in first["report"]] == [7, 8, 9]
    assert first["report"][1]["detail"] == "op: given twice"
    second = read(await bring(admin, scope, torn, "t"))
    assert (second["stored"], second["duplicate"], second["skipped"]) == (0, 5, 3)
    assert without_place(read(await ask(admin, scope, session="t"))) == without_place(before)
    assert (await ask(admin, scope, "/export", session="t")).content == lines
    refused(await bring(admin, scope, b"\xff", "t"), "invalid_request")
    refused(await bring(admin, scope, lines, "t", writer="a b"), "invalid_request")


async def test_equal_lines_stay_as_many_and_an_empty_file_is_one(admin: httpx.AsyncClient, scope: str) -> None:
    line = orjson.dumps(put("m")) + b"\n"
    for stored in (3, 0):
        told = read(await bring(admin, scope, line + b"\n" + line + line, "s"))
        assert (told["stored"], told["duplicate"], told["report"]) == (stored, 3 - stored, [])
    assert (await ask(admin, scope, "/export")).content.count(b"\n") == 3
    assert read(await bring(admin, scope, b"", "s")) == {"stored": 0, "duplicate": 0, "skipped": 0, "report": []}


async def test_who_may_not_write_imports_nothing(client_of: ClientOf, admin: httpx.AsyncClient, scope: str) -> None:
    read(await write(admin, scope, put("m")))
    reader = await client_of("reader", scope)
    for body in (b"", b"no line\n", orjson.dumps(put("n"))):
        refused(await bring(reader, scope, body, "s"), "forbidden")


async def test_two_processes_that_take_in_one_file_store_it_once(
    admin: httpx.AsyncClient, scope: str, second_server: RunningServer
) -> None:
    lines = b"".join(orjson.dumps(put(f"m{n}", n)) + b"\n" for n in range(2_500))
    async with second_server.client() as other:
        answers = await asyncio.gather(*(bring(one, scope, lines, "s") for one in (admin, other)))
        told = [read(answer) for answer in answers]
        assert sum(one["stored"] for one in told) == 2_500
        assert sum(one["duplicate"] for one in told) == 2_500
        held = read(await ask(other, scope))
    assert held["message_ids"] == [f"m{n}" for n in range(2_500)]
    assert read(await ask(admin, scope)) == held


async def test_a_checkpoint_of_ours_is_imported_as_puts(admin: httpx.AsyncClient, scope: str) -> None:
    read(await write(admin, scope, put("a", tokens=3), put("b", 1, partition="system")))
    document = (await ask(admin, scope, "/checkpoint")).content
    for stored in (2, 0):
        told = read(await bring(admin, scope, document, "t"))
        assert (told["stored"], told["duplicate"]) == (stored, 2 - stored)
    assert read(await ask(admin, scope, session="t"))["messages"] == read(await ask(admin, scope))["messages"]
    broken = re.sub(rb'"tokens":3', b'"tokens":4', document)
    assert refused(await bring(admin, scope, broken, "t"), "invalid_request")["gate"] == "checkpoint_corrupted"


@golden("checkpoint-header.json")
async def test_a_checkpoint_of_the_kernel_is_imported_or_refused_by_its_gate(
    admin: httpx.AsyncClient, scope: str, case: Any
) -> None:
    base = vector_file("checkpoint-header.json")["cases"][0]["document"]
    document = edited(base, case["edits"])
    answer = await bring(admin, scope, orjson.dumps(document), "s")
    if "logical_state" not in document:
        assert read(answer)["skipped"] == 1
    elif case["ok"]:
        messages = document["logical_state"]["context_vm"]["messages"]
        assert read(answer)["stored"] == len(messages)
        assert read(await ask(admin, scope))["messages"] == list(map(decode_message, messages))
    else:
        assert refused(answer, "invalid_request")["gate"] == case["code"]


async def test_what_a_checkpoint_holds_beside_messages_is_told_of(admin: httpx.AsyncClient, scope: str) -> None:
    case = next(
        case
        for case in vector_file("restore-cases.json")["cases"]
        if case["context"].get("knowledge") and case.get("full_restore") == {"ok": True}
    )
    context = restore_context(decode_context_vm({**empty_context_vm(), **case["context"]}))
    document = canonical(blank_checkpoint("k", context.to_vm()))
    told = read(await bring(admin, scope, document, "s"))
    assert told["report"] == [
        {"knowledge": n, "detail": "not taken: knowledge is no message"} for n in range(len(context.knowledge))
    ]
    assert (told["stored"], told["skipped"]) == (len(context.messages()), len(context.knowledge))
