"""A ledger as JSON lines (run-ledger.md §2)."""

from foldpoint.admission import MAX_PAYLOAD_DEPTH
from foldpoint.canonical import Json, canonical, is_deeper
from foldpoint.run_ledger.entry import entry_payload
from foldpoint.run_ledger.lines import Imported, Line, Skipped, export_lines, import_lines, import_parts
from foldpoint.run_ledger.merge import merge
from foldpoint.run_ledger.wire import RecordedEvent
from tests.core.run_ledger_records import RUN, STARTS, event, recorded, written

START = RecordedEvent(0, 7, STARTS[0])


def records_of(imported: Imported) -> list[RecordedEvent]:
    return [line.record for line in imported.lines]


def test_what_is_folded_is_exported_in_the_ledgers_order() -> None:
    lost = recorded(500, 0, STARTS[1])
    merged = merge(RUN, [*reversed(written(1)), lost])
    lines = list(export_lines(merged.folded))
    assert lines[0] == (
        b'{"event":{"agent_id":"ada","event":"run_started","run_id":"run-1"},"occurred_at_ms":0,"seq":0}\n'
    )
    assert records_of(import_lines(b"".join(lines), RUN)) == [entry.record for entry in merged.folded]


def test_a_file_is_imported_as_it_is_on_disk() -> None:
    foreign = RecordedEvent(0, 0, {**STARTS[0], "run_id": "run-2"})
    lines = [
        START.text() + b"\r",
        b"",
        b'{"seq":0,"seq":0,"occurred_at_ms":7,"event":{"event":"run_finished","run_id":"run-1"}}',
        foreign.text(),
        b"  ",
        START.text(),
        RecordedEvent(1, 0, event("run_failed", reason="é")).text()[:-9],
    ]
    imported = import_lines(b"\n".join(lines), RUN)
    start = START.text().decode()
    assert imported.lines == [Line(1, start + "\r", START), Line(6, start, START)]
    assert [(skipped.line, skipped.error_class) for skipped in imported.skipped] == [
        (3, "duplicate_field"),
        (4, "foreign_run"),
        (7, "syntax"),
    ]
    assert imported.skipped[1].to_json() == {
        "line": 4,
        "error_class": "foreign_run",
        "detail": "event.run_id: of run run-2",
    }


def test_an_empty_file_holds_nothing() -> None:
    assert import_lines(b"", RUN) == ([], [])
    assert import_lines(b"\n", RUN) == ([], [])
    assert list(import_parts(b"\n\n", RUN)) == []
    assert import_lines(b"\xff\n", RUN).skipped[0][:2] == Skipped(1, "syntax", "")[:2]


def test_a_file_comes_in_parts_of_so_many_lines_or_bytes() -> None:
    text = START.text() + b"\n"
    parts = list(import_parts(b"\n" + 5 * text + text[:-3], RUN, lines=2))
    assert [[line.number for line in part.lines] for part in parts] == [[2, 3], [4, 5], [6]]
    assert [skipped.line for skipped in parts[-1].skipped] == [7]
    assert [len(part.lines) for part in import_parts(3 * text, RUN, size=len(text) + 1)] == [2, 1]


def test_a_record_that_no_payload_can_carry_is_skipped() -> None:
    deep: Json = 1
    for _ in range(116):
        deep = [deep]
    for depth, fits in ((deep, True), ([deep], False)):
        call = {"call_id": "c", "summary": "", "data": depth, "artifacts": [], "visibility": "both"}
        imported = import_lines(RecordedEvent(3, 0, event("tool_finished", result=call)).text(), RUN)
        assert [skipped.error_class for skipped in imported.skipped] == ([] if fits else ["too_deep"])
        if fits:
            payload = entry_payload("w", imported.lines[0].record)
            assert not is_deeper(canonical(payload), MAX_PAYLOAD_DEPTH)
