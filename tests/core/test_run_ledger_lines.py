"""A ledger as JSON lines (run-ledger.md §2)."""

from foldpoint.run_ledger.lines import Skipped, export_lines, import_lines
from foldpoint.run_ledger.merge import merge
from foldpoint.run_ledger.wire import RecordedEvent
from tests.core.run_ledger_records import RUN, STARTS, event, recorded, written

START = RecordedEvent(0, 7, STARTS[0])


def test_what_is_folded_is_exported_in_the_ledgers_order() -> None:
    lost = recorded(500, 0, STARTS[1])
    merged = merge(RUN, [*reversed(written(1)), lost])
    lines = list(export_lines(merged.folded))
    assert lines[0] == (
        b'{"event":{"agent_id":"ada","event":"run_started","run_id":"run-1"},"occurred_at_ms":0,"seq":0}\n'
    )
    assert import_lines(b"".join(lines), RUN).records == [entry.record for entry in merged.folded]


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
    assert imported.records == [START, START]
    assert [(skipped.line, skipped.error_class) for skipped in imported.skipped] == [
        (3, "duplicate_field"),
        (4, "foreign_run"),
        (7, "syntax"),
    ]
    assert imported.skipped[1].to_json() == {"line": 4, "error_class": "foreign_run", "detail": "of run run-2"}


def test_an_empty_file_holds_nothing() -> None:
    assert import_lines(b"", RUN) == ([], [])
    assert import_lines(b"\n", RUN) == ([], [])
    assert import_lines(b"\xff\n", RUN).skipped[0][:2] == Skipped(1, "syntax", "")[:2]
