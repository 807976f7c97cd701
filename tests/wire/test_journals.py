"""Session journals as they are listed, read and appended to (journal.md, server.md §8, §11)."""

from typing import Any

import httpx
import pytest

from foldpoint.canonical import Json
from foldpoint.chain import verify_log
from foldpoint.journal.fold import fold_journal
from foldpoint.op_text import read_op
from foldpoint.state import record_of
from tests.fixtures.devices import Device, NewDevice, envelope, op_texts
from tests.fixtures.journals import append, claim, contents, import_file, message, path, queued, state
from tests.fixtures.projections import enqueue, journal
from tests.fixtures.tokens import ClientOf
from tests.wire.answers import read, refused

ODD = ("\0", "a/b?c", "é", "\uffff", "😀", " ", "x" * 5_000)


async def listed(client: httpx.AsyncClient, scope: str, **params: Any) -> dict[str, Any]:
    found: dict[str, Any] = read(await client.get(path(scope), params=params))
    return found


async def test_sessions_are_listed_by_key_page_by_page(device: NewDevice, scope: str) -> None:
    mac = device("mac")
    for session in ODD:
        enqueue(mac, "go", session)
    enqueue(mac, "again", "é")
    await mac.push()
    pages: list[Any] = []
    cursor: dict[str, str] = {}
    while True:
        page = await listed(mac.client, scope, limit=2, **cursor)
        pages += page["journals"]
        if page["cursor"] is None:
            break
        cursor = {"cursor": page["cursor"]}
    assert [entry["session"] for entry in pages] == sorted(ODD, key=str.encode)
    (one,) = (entry for entry in pages if entry["session"] == "é")
    assert one == {"session": "é", "handle": None, "entries": 2, "last": mac.ops[-1].hlc.to_json()}
    for session in ODD:
        assert (await state(mac.client, scope, session))["records"] == 1 + (session == "é")


async def test_a_handle_is_the_session_renamed_last_and_the_others_are_told(device: NewDevice, scope: str) -> None:
    mac, phone = device("mac"), device("phone")
    for session in ("a", "b", "c"):
        journal(mac, {"op": "rename", "from": session, "to": "trip"}, session)
    journal(mac, {"op": "rename", "from": "trip", "to": "work"}, "c")
    phone.wall_ms = mac.wall_ms - 10
    journal(phone, {"op": "rename", "from": "b", "to": "old"}, "b")
    journal(phone, {"op": "rename", "from": "d", "to": "trip"}, "d")
    await mac.push()
    await phone.push()
    found = await listed(mac.client, scope, handle="trip")
    assert (found["journal"]["session"], found["journal"]["handle"]) == ("b", "trip")
    assert [other["session"] for other in found["alternatives"]] == ["a", "d"]
    assert found["more"] is False
    found = await listed(mac.client, scope, handle="trip", limit=1)
    assert ([other["session"] for other in found["alternatives"]], found["more"]) == (["a"], True)
    assert await listed(mac.client, scope, handle="old") == {"journal": None, "alternatives": [], "more": False}
    assert (await state(mac.client, scope, "c"))["handle"] == "work"


async def test_a_session_that_nobody_wrote_into_is_empty(device: NewDevice, scope: str) -> None:
    mac = await _with_a_fact(device)
    found = await state(mac.client, scope, "nobody's")
    assert (found["messages"], found["records"], found["seen"], found["handle"]) == ([], 0, {}, None)
    exported = await mac.client.get(path(scope, "/export"), params={"session": "nobody's"})
    assert (exported.status_code, exported.content) == (200, b"")
    params = {"session": "nobody's", "transcript_messages": "1"}
    recovered = read(await mac.client.get(path(scope, "/recovery"), params=params))
    assert (recovered["messages"], recovered["checkpoint_messages"]) == ([], 1)


async def _with_a_fact(device: NewDevice) -> Device:
    mac = device("mac")
    mac.facts(1)
    return await mac.push()


async def test_several_devices_in_any_order_are_one_state(device: NewDevice, scope: str) -> None:
    mac, phone = device("mac"), device("phone")
    said = journal(mac, message("one"))
    journal(phone, message("two"), seen={"mac": list(said.hlc[:2])})
    journal(mac, {"op": "rewind", "to": 0}, seen={})
    journal(phone, {"op": "checkpoint", "messages": 3}, seen={"mac": list(said.hlc[:2])})
    await phone.push()
    await state(mac.client, scope)
    await mac.push()
    found = await state(mac.client, scope)
    expected = fold_journal(sorted(record_of(op) for each in (mac, phone) for op in each.ops)).to_json()
    assert {name: found[name] for name in expected} == expected
    assert contents(found) == ["two"]
    assert found["last_checkpoints"] == {"phone": 3}
    assert found["seen"].keys() == {"mac", "phone"}


async def test_what_is_appended_is_pulled_verified_and_folded_by_devices(device: NewDevice, scope: str) -> None:
    mac = device("mac")
    journal(mac, message("from the mac"))
    await mac.push()
    answer = read(await append(mac.client, scope, message("same"), message("same"), {"op": "unrewind"}))
    assert answer["seen"] is None
    assert len({op["payload"]["id"] for op in answer["ops"]}) == 3
    pulled = [read_op(text) for text in op_texts(await mac.pull())]
    verify_log(pulled)
    expected = fold_journal(sorted(record_of(op) for op in pulled)).to_json()
    found = await state(mac.client, scope)
    assert {name: found[name] for name in expected} == expected
    assert contents(found) == ["from the mac", "same", "same"]


async def test_a_call_sent_again_with_its_key_appends_once(admin: httpx.AsyncClient, scope: str) -> None:
    first = await append(admin, scope, message("hi"), key="k", seen="now")
    assert (await append(admin, scope, message("hi"), key="k", seen="now")).content == first.content
    read(await append(admin, scope, message("hi"), key="k2"))
    assert contents(await state(admin, scope)) == ["hi", "hi"]
    refused(await append(admin, scope, message("other"), key="k"), "invalid_request")


async def test_what_is_appended_counts_in_what_its_writer_saw(device: NewDevice, scope: str) -> None:
    """A rewind to one message, a dequeue of one entry and a checkpoint: each of what the page showed."""
    mac, late = device("mac"), device("late")
    for op in (message("one"), message("two"), queued("first")):
        journal(mac, op)
    await mac.push()
    shown = (await state(mac.client, scope))["seen"]
    journal(late, message("zero"), "s")
    journal(late, queued("earlier"), "s")
    assert late.ops[0].hlc < mac.ops[-1].hlc
    await late.push()
    entries = [{"op": "rewind", "to": 1}, {"op": "dequeue", "queue": "steer", "count": 1}]
    answer = read(await append(mac.client, scope, *entries, message("three"), seen=shown))
    assert answer["seen"] == shown
    found = await state(mac.client, scope)
    assert contents(found) == ["one", "zero", "three"] or contents(found) == ["zero", "one", "three"]
    assert found["steer_queue"] == ["earlier"]
    read(await append(mac.client, scope, {"op": "checkpoint", "messages": 3}, seen=shown))
    assert contents(await state(mac.client, scope), "unpersisted") == []
    journal(late, message("later"), "s")
    late.ops[-1]
    await late.push()
    read(await append(mac.client, scope, {"op": "checkpoint", "messages": 4}, seen=shown))
    assert contents(await state(mac.client, scope), "unpersisted") == []


async def test_now_is_all_there_is_when_the_entries_are_written(device: NewDevice, scope: str) -> None:
    mac, late = device("mac"), device("late")
    journal(mac, queued("one"))
    await mac.push()
    entry: Json = {"op": "dequeue", "queue": "steer", "count": 1}
    answer = read(await append(mac.client, scope, entry, seen="now"))
    assert answer["seen"] == {"mac": list(mac.ops[0].hlc[:2])}
    journal(late, queued("late"))
    late.wall_ms = 0
    await late.push()
    assert (await state(mac.client, scope))["steer_queue"] == ["late"]
    read(await append(mac.client, scope, {"op": "dequeue", "queue": "steer", "count": 1}))
    assert (await state(mac.client, scope))["steer_queue"] == []


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no session": ({"session": None}, "session"),
    "an empty session": ({"session": ""}, "session"),
    "no entries": ({"entries": []}, "entries"),
    "entries that are no list": ({"entries": {"op": "unrewind"}}, "entries"),
    "an entry that is none": ({"entries": ["unrewind"]}, "entries[0]"),
    "an unknown op": ({"entries": [{"op": "Rewind", "to": 1}]}, "entries[0].op"),
    "a number that is none": ({"entries": [{"op": "unrewind"}, {"op": "rewind", "to": 1.0}]}, "entries[1].to"),
    "a negative number": ({"entries": [{"op": "rewind", "to": -1}]}, "entries[0].to"),
    "an unknown queue": ({"entries": [{"op": "dequeue", "queue": "Steer", "count": 1}]}, "entries[0].queue"),
    "a turn without framing": (
        {"entries": [{"op": "message", "message": {"role": "user"}}]}, "entries[0].message.supercode_turn",
    ),
    "a step of a plan": ({"entries": [{"op": "plan", "steps": [{"step": "x"}]}]}, "entries[0].steps[0].status"),
    "null metadata": ({"entries": [message("x", metadata=None)]}, "entries[0].message.metadata"),
    "another version": ({"entries": [{"op": "unrewind", "supercode_journal": 2}]}, "entries[0].supercode_journal"),
    "a stamp that is no text": ({"entries": [{"op": "unrewind", "ts": 1}]}, "entries[0].ts"),
    "seen as seqs": ({"seen": {"mac": 3}}, "seen.mac"),
    "seen as a word": ({"seen": "later"}, "seen"),
    "seen beyond u32": ({"seen": {"mac": [1, 2**32]}}, "seen.mac"),
    "no writer": ({"writer": None}, "writer"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
async def test_what_a_line_reader_would_skip_is_refused_with_its_path(
    admin: httpx.AsyncClient, scope: str, name: str
) -> None:
    more, where = BAD[name]
    body = {"writer": "web", "session": "s", "entries": [{"op": "unrewind"}], **more}
    assert refused(await admin.post(path(scope, "/append"), json=body), "invalid_request")["path"] == where
    refused(await admin.get(path(scope)), "not_found")


DEEP = b'{"op":"message","message":{"supercode_turn":1,"ts":"","role":"user","content_parts":%b}}'
TEXTS = {
    "a field twice": (b'[{"op":"rewind","to":1,"to":2}]', "entries[0].to"),
    "op twice": (b'[{"op":"rewind","op":"rewind","to":2}]', "entries[0].op"),
    "a field of a turn twice": (
        b'[{"op":"unrewind"},{"op":"message","message":{"supercode_turn":1,"ts":"","ts":"","role":"user"}}]',
        "entries[1].message.ts",
    ),
    "a field of a step twice": (
        b'[{"op":"plan","steps":[{"step":"a","status":"b"},{"step":"a","step":"b","status":"c"}]}]',
        "entries[0].steps[1].step",
    ),
    "too deep": (b"[" + DEEP % (b"[" * 118 + b"]" * 118) + b"]", "entries[0]"),
    "deeper than JSON": (b"[" + DEEP % (b"[" * 130 + b"]" * 130) + b"]", ""),
    "a lone surrogate": (b'[{"op":"rename","from":"\\ud800","to":""}]', ""),
}


@pytest.mark.parametrize("name", TEXTS)
async def test_what_only_the_text_tells_is_refused_too(admin: httpx.AsyncClient, scope: str, name: str) -> None:
    text, where = TEXTS[name]
    response = await admin.post(path(scope, "/append"), content=b'{"writer":"web","session":"s","entries":%b}' % text)
    assert refused(response, "invalid_request")["path"] == where


async def test_a_key_twice_where_any_json_may_stand_is_none_of_our_business(
    admin: httpx.AsyncClient, scope: str
) -> None:
    parts = DEEP % b'[{"a":1,"a":2}]'
    body = b'{"writer":"web","session":"s","unknown":1,"unknown":2,"entries":[%b]}' % parts
    read(await admin.post(path(scope, "/append"), content=body))
    assert (await state(admin, scope))["messages"] == [{"role": "user", "content_parts": [{"a": 2}]}]


async def test_as_deep_as_a_payload_may_be_is_stored_and_pulled(device: NewDevice, scope: str) -> None:
    mac = await _with_a_fact(device)
    entry = DEEP % (b"[" * 117 + b"]" * 117)
    body = b'{"writer":"web","session":"s","entries":[%b]}' % entry
    read(await mac.client.post(path(scope, "/append"), content=body))
    assert len(op_texts(await mac.pull())) == 2


async def test_questions_that_cannot_be_read_are_refused(
    admin: httpx.AsyncClient, device: NewDevice, scope: str
) -> None:
    await _with_a_fact(device)
    for call, params in (
        ("", {"session": ""}),
        ("", {"session": "s", "handle": "h"}),
        ("", {"limit": "0"}),
        ("/export", {}),
        ("/export", {"session": "s", "form": "csv"}),
        ("/recovery", {"session": "s"}),
        ("/recovery", {"session": "s", "transcript_messages": "-1"}),
        ("/recovery", {"session": "s", "transcript_messages": str(2**64)}),
    ):
        refused(await admin.get(path(scope, call), params=params), "invalid_request")
    refused(await admin.get(path(scope), params={"cursor": "x"}), "invalid_cursor")
    params = {"session": "s", "transcript_messages": str(2**64 - 1)}
    assert read(await admin.get(path(scope, "/recovery"), params=params))["transcript_messages"] == 2**64 - 1


async def test_who_may_do_what(client_of: ClientOf, device: NewDevice, scope: str) -> None:
    await _with_a_fact(device)
    reader, other = await client_of("reader", scope), await client_of("executor", scope + "2")
    executor = await client_of("executor", scope)
    read(await append(executor, scope, queued("x")))
    read(await claim(executor, scope))
    read(await import_file(executor, scope, b"{"))
    for client in (reader, other):
        for write in (append(client, scope, queued("x")), claim(client, scope), import_file(client, scope, b"")):
            refused(await write, "forbidden")
    read(await reader.get(path(scope)))
    for call in ("", "/export", "/recovery"):
        params = {"session": "s", "transcript_messages": "1"}
        assert (await reader.get(path(scope, call), params=params)).status_code == 200
        refused(await other.get(path(scope, call), params=params), "forbidden")


async def test_in_a_locked_scope_nothing_is_told_or_taken(device: NewDevice, scope: str) -> None:
    mac = device("mac")
    mac.write("registry:foldpoint.journal", envelope())
    await mac.push()
    for call in ("", "/export", "/recovery"):
        params = {"session": "s", "transcript_messages": "1"}
        refused(await mac.client.get(path(scope, call), params=params), "sealed_scope", 503)
    refused(await mac.client.get(path(scope)), "sealed_scope", 503)
    refused(await append(mac.client, scope, queued("x"), seen="now"), "sealed_scope", 409)
    refused(await claim(mac.client, scope), "sealed_scope", 409)
    refused(await import_file(mac.client, scope, b"{}"), "sealed_scope", 409)


async def test_journals_are_no_conversations_and_the_state_is_what_devices_fold(device: NewDevice, scope: str) -> None:
    mac = await _with_a_fact(device)
    read(await append(mac.client, scope, message("hi"), queued("x")))
    read(await claim(mac.client, scope))
    assert read(await mac.client.get(f"/v1/scopes/{scope}/conversations"))["conversations"] == []
    assert read(await mac.client.get(f"/v1/scopes/{scope}/resume", params={"conversation": "s"}))["messages"] == []
