"""A ledger as JSON lines, one RecordedEvent each, which is the form that the crate replays (run-ledger.md §2)."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from foldpoint.canonical import Json
from foldpoint.run_ledger.entry import Entry
from foldpoint.run_ledger.reading import Undecodable, read_text
from foldpoint.run_ledger.wire import RecordedEvent, read_record


class Skipped(NamedTuple):
    """A line that was not imported: its number from 1, the class of the error, and what is wrong."""

    line: int
    error_class: str
    detail: str

    def to_json(self) -> dict[str, Json]:
        return self._asdict()


class Imported(NamedTuple):
    records: list[RecordedEvent]
    skipped: list[Skipped]


def export_lines(folded: Iterable[Entry]) -> Iterator[bytes]:
    """The folded ledger, so that whoever reads it replays it without an error."""
    for entry in folded:
        yield entry.record.text() + b"\n"


def import_lines(text: bytes, run_id: str) -> Imported:
    """The records of one run in a file, as they stand there; a last line may be torn, empty ones are nothing.

    A record says where it belongs, so lines may be repeated, in any order, or imported again.
    """
    records: list[RecordedEvent] = []
    skipped: list[Skipped] = []
    for number, line in enumerate(text.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            record: RecordedEvent = read_text(read_record, line)
        except Undecodable as error:
            skipped.append(Skipped(number, error.error_class, str(error)))
            continue
        if record.run_id == run_id:
            records.append(record)
        else:
            skipped.append(Skipped(number, "foreign_run", f"of run {record.run_id}"))
    return Imported(records, skipped)
