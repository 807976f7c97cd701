"""Entries as payloads of the registry (server.md §8)."""

from typing import Any

import pytest

from foldpoint.canonical import Json, canonical
from foldpoint.hlc import Hlc
from foldpoint.journal.files import export_records, import_file
from foldpoint.journal.fold import fold_file, fold_journal
from foldpoint.journal.records import read_record, session_of, write_payload
from foldpoint.projection import payload_id
from foldpoint.state import Record
from tests.fixtures.vectors import text

REWIND = {"op": "rewind", "to": 3}
DEEP = "[" * 120 + "]" * 120
DEEP_LINE = (
    '{"supercode_journal":1,"ts":"t","op":"message","message":{"supercode_turn":1,"ts":"t","role":"user",'
    f'"content_parts":{DEEP}}}}}'
)


def record(payload: Any, device: str = "laptop", wall_ms: int = 5) -> Record:
    return Record(Hlc(wall_ms, 0, device), f"op-{wall_ms}", canonical(payload))


def signed(author: str = "laptop", **payload: Json) -> dict[str, Json]:
    return {**payload, "id": payload_id(author, payload)}


def test_a_payload_reads_as_it_was_written() -> None:
    payload = write_payload("laptop", "s", REWIND, seen={"phone": (7, 2)}, source="x")
    assert payload == signed(session="s", entry=REWIND, seen={"phone": [7, 2]}, source="x")
    entry = read_record(record(payload))
    assert entry == (payload["id"], Hlc(5, 0, "laptop"), "op-5", "laptop", REWIND, {"phone": (7, 2)}, None)


def test_a_hosted_chain_writes_in_its_writers_name() -> None:
    payload = write_payload("desk", "s", REWIND)
    entry = read_record(record(payload, "hosted-desk-0123abcd"))
    assert entry is not None
    assert entry.author == "desk"
    assert read_record(record(payload, "laptop")) is None


@pytest.mark.parametrize(
    "payload",
    [
        signed("phone", session="s", entry=REWIND),
        {**signed(session="s", entry=REWIND), "session": "t"},
        {"session": "s", "entry": REWIND},
        {"id": None, "session": "s", "entry": REWIND},
        signed(session="s"),
        signed(session="s", entry=None),
        signed(session="s", entry={"op": "teleport"}),
        signed(session="s", entry={**REWIND, "supercode_journal": 2}),
        signed(session="s", entry={**REWIND, "supercode_journal": True}),
        signed(session="s", entry=REWIND, seen=[]),
        signed(session="s", entry=REWIND, seen={"phone": 1}),
        signed(session="s", entry=REWIND, seen={"phone": [1]}),
        signed(session="s", entry=REWIND, seen={"phone": [1, 2, 3]}),
        signed(session="s", entry=REWIND, seen={"phone": [1, 2**32]}),
        signed(session="s", entry=REWIND, seen={"phone": [-1, 0]}),
        signed(session="s", entry=REWIND, seen={"phone": [1.0, 0]}),
        signed(session="s", source={"line": 1, "text": "torn {"}),
        signed(session="s", source={"line": 1, "text": 7}),
        "no object",
    ],
)
def test_what_is_not_understood_or_not_its_authors_is_skipped(payload: Any) -> None:
    state = fold_journal([record(payload)])
    assert (state.records, state.skipped) == (0, 1)
    assert state.view.heads == {}


def test_a_seen_of_null_is_none() -> None:
    entry = read_record(record(signed(session="s", entry=REWIND, seen=None)))
    assert entry is not None
    assert entry.seen is None


@pytest.mark.parametrize(
    ("payload", "session"),
    [
        ({"session": "s"}, "s"),
        ({"session": "\0"}, "\0"),
        ({"session": ""}, None),
        ({"session": 1}, None),
        ({}, None),
        ([], None),
    ],
)
def test_a_session_is_any_string_but_the_empty_one(payload: Json, session: str | None) -> None:
    assert session_of(payload) == session


def test_equal_lines_stay_two_and_a_second_import_adds_none() -> None:
    line = b'{"supercode_journal":1,"ts":"t","op":"enqueue","queue":"steer","text":"go"}\n'
    first, again = import_file(line * 2, "laptop", "s"), import_file(line * 3, "laptop", "s")
    ids = [imported.payload["id"] for imported in first]
    assert len(set(ids)) == 2
    assert [imported.payload["id"] for imported in again][:2] == ids
    assert import_file(line, "laptop", "t")[0].payload["id"] != ids[0]
    assert import_file(line, "phone", "s")[0].payload["id"] != ids[0]


def test_a_torn_line_is_carried_and_counts_as_skipped() -> None:
    data = b'\n{"supercode_journal":1,"ts":"t","op":"unrewind"}\n{"supercode_jour'
    imported = import_file(data, "laptop", "s")
    assert [(one.line, bool(one.detail)) for one in imported] == [(2, False), (3, True)]
    assert imported[1].payload["source"] == {"line": 3, "text": '{"supercode_jour'}
    records = [record(one.payload, wall_ms=one.line) for one in imported]
    state = fold_journal(records)
    assert (state.records, state.skipped) == (1, 1)
    assert list(export_records(records))[1] == b'{"supercode_jour\n'


def test_a_line_too_deep_for_a_payload_is_carried_as_text_and_folds_all_the_same() -> None:
    assert fold_file(DEEP_LINE.encode()).records == 1
    (imported,) = import_file(DEEP_LINE.encode(), "laptop", "s")
    assert "entry" not in imported.payload
    assert imported.detail == ""
    state = fold_journal([record(imported.payload)])
    assert text([message.value for message in state.view.messages]) == text(
        [message.value for message in fold_file(DEEP_LINE.encode()).view.messages]
    )
    (shallower,) = import_file(DEEP_LINE.replace("[[[", "[", 1).replace("]]]", "]", 1).encode(), "laptop", "s")
    assert "entry" not in shallower.payload
    (shallow,) = import_file(DEEP_LINE.replace("[[[[", "[", 1).replace("]]]]", "]", 1).encode(), "laptop", "s")
    assert "entry" in shallow.payload


def test_what_a_newer_device_wrote_is_exported_as_it_is_and_forgeries_are_not() -> None:
    newer = signed(session="s", entry={"op": "teleport", "to": 1})
    foreign = signed("phone", session="s", entry=REWIND)
    injected = signed(session="s", source={"line": 1, "text": 'x\n{"supercode_journal":1,"ts":"t","op":"unrewind"}'})
    lines = list(export_records([record(newer), record(foreign), record(injected)]))
    assert lines == [b'{"supercode_journal":1,"ts":"1970-01-01T00:00:00.005Z","op":"teleport","to":1}\n']


def test_an_exported_line_has_the_records_time_and_the_ops_own() -> None:
    op = {"op": "message", "message": {"supercode_turn": 1, "ts": "yesterday", "role": "user", "content": "hi"}}
    (line,) = export_records([record(write_payload("laptop", "s", op), wall_ms=1_772_366_400_000)])
    assert line == (
        b'{"supercode_journal":1,"ts":"2026-03-01T12:00:00.000Z","op":"message",'
        b'"message":{"supercode_turn":1,"ts":"yesterday","role":"user","content":"hi"}}\n'
    )
