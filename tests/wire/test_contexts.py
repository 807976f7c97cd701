"""Contexts of stored messages over HTTP (stored-message.md §11, server.md §8, §11)."""

from typing import Any

import asyncpg
import httpx
import pytest

from foldpoint.op import op_from_json
from foldpoint.projection import recomputes
from foldpoint.stored_message.checkpoint import decode_checkpoint, restore_checkpoint
from tests.fixtures.contexts import CONTEXT, ask, message, move, put, remove, texts, write
from tests.fixtures.devices import NewDevice, collect
from tests.fixtures.projections import put_message
from tests.fixtures.sealing import Sealing, delete_keys, put_keys
from tests.wire.answers import read, refused


async def test_hosted_ops_are_pulled_and_recompute(admin: httpx.AsyncClient, scope: str, device: NewDevice) -> None:
    told = read(await write(admin, scope, put("a"), put("b", pos=-1), move("a", "system", 3)))
    written = [op_from_json(op) for op in told["ops"]]
    assert all(isinstance(op.payload, dict) and recomputes(op.device_id, op.payload) for op in written)
    assert await texts(admin, scope) == ["a", "b"]
    assert read(await device("mac").pull())["ops"] == told["ops"]


async def test_equal_ops_are_each_an_op_and_a_retry_is_none(admin: httpx.AsyncClient, scope: str) -> None:
    read(await write(admin, scope, put("a"), put("b")))
    again = {"idempotency-key": "k"}
    first = await write(admin, scope, put("a"), put("a"), **again)
    assert (await write(admin, scope, put("a"), put("a"), **again)).content == first.content
    payloads = [op["payload"] for op in read(first)["ops"]]
    assert len({payload["id"] for payload in payloads}) == 2
    assert await texts(admin, scope) == ["a", "b"]


async def test_legal_spellings_are_stored_as_a_checkpoint_holds_them(admin: httpx.AsyncClient, scope: str) -> None:
    calls = [{"call_id": "c", "name": "look", "arguments": '{"b":1, "a":2}'}]
    result = {"form": "inline", "text": "a bed", "tool_call_id": "c", "is_error": False}
    read(await write(admin, scope, put("q", role="assistant", tool_calls=calls), put("r", 1, role="tool", body=result)))
    asked, answered = read(await ask(admin, scope))["messages"]
    assert asked["tool_calls"][0]["arguments"] == '{"a":2,"b":1}'
    assert answered["body"]["form"] == "structured"


REFUSED = {
    "no list": (None, "ops", None),
    "none": ([], "ops", None),
    "an unknown op": ([{"op": "push"}], "ops[0].op", "malformed_envelope"),
    "no place": ([{"op": "put", "message_id": "m", "message": message()}], "ops[0].pos", "malformed_envelope"),
    "another key": ([{**put("m"), "more": 1}], "ops[0].more", "malformed_envelope"),
    "tokens below none": ([put("a"), put("m", tokens=-1)], "ops[1].message.tokens", "malformed_envelope"),
    "an unknown role": ([put("m", role="judge")], "ops[0].message.role", "checkpoint_incompatible"),
    "arguments that are none": (
        [put("m", tool_calls=[{"call_id": "c", "name": "n", "arguments": "{"}])],
        "ops[0].message.tool_calls",
        "checkpoint_incompatible",
    ),
    "a removed message": ([remove("m"), put("m")], "ops[1].message_id", None),
}


@pytest.mark.parametrize(("ops", "path", "gate"), REFUSED.values(), ids=REFUSED)
async def test_what_a_gate_refuses_is_refused_whole(
    admin: httpx.AsyncClient, scope: str, ops: Any, path: str, gate: str | None
) -> None:
    read(await write(admin, scope, put("there")))
    body = {"writer": "web", "session": "s", "ops": ops}
    problem = refused(await admin.post(f"/v1/scopes/{scope}/contexts/ops", json=body), "invalid_request")
    assert (problem["path"], problem.get("gate")) == (path, gate)
    assert await texts(admin, scope) == ["there"]


async def test_an_id_is_never_used_again(admin: httpx.AsyncClient, scope: str, device: NewDevice) -> None:
    read(await write(admin, scope, put("m"), remove("m")))
    refused(await write(admin, scope, put("m")), "invalid_request")
    refused(await write(admin, scope, move("m", "system", 0)), "invalid_request")
    mac = device("mac")
    mac.wall_ms = 2**40
    put_message(mac, "m", "again")
    await mac.push()
    assert await texts(admin, scope) == []


async def test_sessions_are_listed_and_any_string_names_one(admin: httpx.AsyncClient, scope: str) -> None:
    names = ["", "a/b", "a\0", "ä", "z" * 300]
    for name in names:
        read(await write(admin, scope, put("m"), put("n"), session=name))
    base, listed, cursor = f"/v1/scopes/{scope}/contexts", [], None
    while True:
        page = read(await admin.get(base, params={"limit": 2} | ({"cursor": cursor} if cursor else {})))
        listed += [(one["session"], one["entries"]) for one in page["contexts"]]
        cursor = page["cursor"]
        if cursor is None:
            break
    assert listed == [(name, 2) for name in sorted(names, key=str.encode)]
    refused(await admin.get(base, params={"cursor": "no"}), "invalid_cursor")


async def test_a_checkpoint_is_restored_with_what_the_session_holds(admin: httpx.AsyncClient, scope: str) -> None:
    read(await write(admin, scope, put("a", tokens=3), put("b", 1, tokens=4)))
    answer = await ask(admin, scope, "/checkpoint")
    document = read(answer)
    context = restore_checkpoint(decode_checkpoint(document))
    assert context.messages() == read(await ask(admin, scope))["messages"]
    assert context.partition_tokens == {"system": 0, "knowledge": 0, "history": 7}
    tag = answer.headers["etag"]
    held = await admin.get(answer.request.url, headers={"if-none-match": tag})
    assert (tag, held.status_code, held.content) == (f'"{document["checkpoint_digest"]}"', 304, b"")


async def test_totals_that_no_kernel_counts_are_told_and_refused(admin: httpx.AsyncClient, scope: str) -> None:
    read(await write(admin, scope, put("a", tokens=2**32 - 1), put("b", tokens=2)))
    assert read(await ask(admin, scope))["partition_tokens"]["history"] == 2**32 + 1
    for path in ("/checkpoint", "/render"):
        problem = refused(await ask(admin, scope, path, window=100), "invalid_request")
        assert problem["gate"] == "checkpoint_incompatible"
    assert [turn["content"] for turn in read(await ask(admin, scope, "/resume"))["messages"]] == ["a", "b"]
    refused(await ask(admin, scope, "/render"), "invalid_request")


async def test_what_a_provider_would_refuse_is_left_out_and_told(admin: httpx.AsyncClient, scope: str) -> None:
    def call(name: str) -> dict[str, str]:
        return {"call_id": name, "name": "look", "arguments": "{}"}

    def result(name: str) -> dict[str, Any]:
        return {"form": "inline", "text": "seen", "tool_call_id": name, "is_error": False}

    ops = [
        put("q", 0),
        put("calls", 1, role="assistant", tool_calls=[call("c1"), call("c2")]),
        put("r1", 2, role="tool", body=result("c1")),
        put("r3", 3, role="tool", body=result("c3")),
    ]
    read(await write(admin, scope, *ops))
    told = read(await ask(admin, scope, "/resume"))
    assert told["left_out"] == {"turns": 1, "calls": ["c2"], "results": ["c3"]}
    assert [turn["role"] for turn in told["messages"]] == ["user", "assistant", "tool"]
    assert [one["id"] for one in told["messages"][1]["tool_calls"]] == ["c1"]


async def test_an_unlocked_scope_has_contexts_and_a_locked_one_none(
    admin: httpx.AsyncClient, scope: str, database: asyncpg.Connection
) -> None:
    mac = Sealing(admin, scope, "mac")
    put_message(mac, "m", "sealed words")
    await mac.push()
    refused(await ask(admin, scope), "sealed_scope", 503)
    refused(await write(admin, scope, put("n")), "sealed_scope")
    read(await put_keys(admin, scope))
    (op,) = read(await write(admin, scope, put("n", 1)))["ops"]
    assert op["payload"].keys() == {"car_enc", "nonce", "ct"}
    assert await texts(admin, scope) == ["sealed words", "n"]
    read(await delete_keys(admin, scope))
    refused(await ask(admin, scope), "sealed_scope", 503)
    assert (
        await database.fetchval(
            "select count(*) from entry where scope = (select id from scope where slug = $1)", scope
        )
        == 0
    )


async def test_collection_takes_no_message(device: NewDevice, scope: str) -> None:
    mac, phone = device("mac"), device("phone")
    put_message(mac, "m", "one")
    put_message(phone, "m", "two")
    for each in (mac, phone):
        await each.push()
    before = read(await ask(mac.client, scope))
    assert await collect([mac, phone]) == {"mac": 1, "phone": 1}
    assert read(await ask(mac.client, scope)) == before


async def test_what_is_closed_for_want_of_an_orgs_key_is_no_part_of_a_context(
    admin: httpx.AsyncClient, scope: str
) -> None:
    mac = Sealing(admin, scope, "mac")
    put_message(mac, "m", "personal")
    mac.write(CONTEXT, {"id": "anything"}, scope="shared:acme")
    await mac.push()
    read(await put_keys(admin, scope))
    assert await texts(admin, scope) == ["personal"]
    read(await write(admin, scope, put("n", 1)))
    assert await texts(admin, scope) == ["personal", "n"]
