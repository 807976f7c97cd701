from typing import Any

import pytest

from foldpoint.canonical import Unreadable, read_json
from foldpoint.journal.files import import_file
from foldpoint.journal.fold import fold_file
from foldpoint.journal.lines import read_line, write_line
from foldpoint.journal.messages import read_transcript_message, transcript_message
from tests.fixtures.journal_vectors import check_state, golden
from tests.fixtures.vectors import text


@golden("bytes.json")
def test_a_file_is_utf_8_throughout_or_not_read_at_all(case: Any) -> None:
    data = bytes.fromhex(case["bytes_hex"])
    if "ok" in case["expected"]:
        check_state(fold_file(data), case["expected"]["ok"])
        return
    assert case["expected"] == {"error": "invalid_utf8"}
    with pytest.raises(Unreadable, match="not UTF-8 at byte"):
        fold_file(data)
    with pytest.raises(Unreadable, match="not UTF-8 at byte"):
        import_file(data, "laptop", "s")


@golden("writer.json")
def test_lines_are_written_as_the_crate_writes_them(case: Any) -> None:
    line = case["bytes"].removesuffix("\n")
    ts = read_json(line.encode())
    assert isinstance(ts, dict)
    assert write_line(read_line(line), ts["ts"]).decode() == case["bytes"]


@golden("wire.json")
def test_messages_lose_on_the_transcript_wire_what_the_crate_loses(case: Any) -> None:
    (message,) = fold_file(case["text"].encode()).view.messages
    assert text(message.value) == text(case["state_message"])
    wire = transcript_message(message.value)
    assert text(wire) == text(case["transcript_line"])
    again = read_transcript_message(wire)
    assert text(again) == text(case["transcript_reloaded"])
    assert (text(again) == text(message.value)) is case["lossless"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("null", {}),
        ('"hi"', {"content": "hi"}),
        ("[1]", {"content_parts": [1]}),
        ('{"b":1.5,"a":true}', {"content": '{"a":true,"b":1.5}'}),
        ("7", {"content": "7"}),
    ],
)
def test_content_on_the_transcript_wire_is_text_or_parts_or_becomes_text(content: str, message: Any) -> None:
    wire = read_json(b'{"role":"user","content":%b,"metadata":{"a":"b"}}' % content.encode())
    assert text(read_transcript_message(wire)) == text({"role": "user", **message})
