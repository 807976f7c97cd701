"""A ledger as JSON lines, one RecordedEvent each, which is the form that the crate replays (run-ledger.md §2)."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from foldpoint.canonical import Json
from foldpoint.run_ledger.calls import of_run
from foldpoint.run_ledger.entry import Entry
from foldpoint.run_ledger.reading import Undecodable, read_text
from foldpoint.run_ledger.wire import RecordedEvent, read_record


class Line(NamedTuple):
    """A line that holds a record of the run; lines are numbered from 1."""

    number: int
    text: str
    record: RecordedEvent


class Skipped(NamedTuple):
    """A line that was not imported: its number, the class of the error, and what is wrong."""

    line: int
    error_class: str
    detail: str

    def to_json(self) -> dict[str, Json]:
        return self._asdict()


class Imported(NamedTuple):
    lines: list[Line]
    skipped: list[Skipped]


def export_line(entry: Entry) -> bytes:
    return entry.record.text() + b"\n"


def import_lines(text: bytes, run_id: str) -> Imported:
    """The records of one run in a file, as they stand there; a last line may be torn, empty ones are nothing.

    A record says where it belongs, so lines may be repeated, in any order, or imported again.
    """
    lines: list[Line] = []
    skipped: list[Skipped] = []
    for part in import_parts(text, run_id):
        lines += part.lines
        skipped += part.skipped
    return Imported(lines, skipped)


def import_parts(text: bytes, run_id: str, lines: int = 1_000, size: int = 1024 * 1024) -> Iterator[Imported]:
    """The same part by part: each of so many lines at most, and of about so many bytes."""
    for numbered in _parts(text, lines, size):
        part = Imported([], [])
        for number, line in numbered:
            read = _read(number, line, run_id)
            if isinstance(read, Line):
                part.lines.append(read)
            else:
                part.skipped.append(read)
        yield part


def _parts(text: bytes, lines: int, size: int) -> Iterator[list[tuple[int, bytes]]]:
    """The lines that are not empty, with their numbers."""
    part: list[tuple[int, bytes]] = []
    held = number = at = 0
    while at < len(text):
        number += 1
        end = text.find(b"\n", at)
        end = len(text) if end < 0 else end
        line, at = text[at:end], end + 1
        if line.strip():
            part.append((number, line))
            held += len(line)
        if len(part) == lines or held >= size:
            yield part
            part, held = [], 0
    if part:
        yield part


def _read(number: int, line: bytes, run_id: str) -> Line | Skipped:
    try:
        record: RecordedEvent = read_text(read_record, line)
        return Line(number, line.decode(), of_run(record, run_id))
    except Undecodable as error:
        return Skipped(number, error.error_class, str(error))


def export_lines(folded: Iterable[Entry]) -> Iterator[bytes]:
    """The folded ledger, so that whoever reads it replays it without an error."""
    return map(export_line, folded)
