"""Journal files into a session, some lines a transaction; what is there already stays where it is (journal.md §8.2)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from app.problems import Problem
from app.services.access import Caller
from app.services.hosting import Hosting
from app.services.projections.writes import storing
from app.services.pushing.arrivals import off_loop
from foldpoint.journal.files import Imported, import_line
from foldpoint.journal.lines import Unread
from foldpoint.projections import JOURNAL

#: Lines of one transaction, or so many characters of them.
LINES, CHARACTERS = 500, 2 * 1024 * 1024
#: Skipped lines that an answer says more of than how many there are.
REPORTED = 1_000
#: What an op has beside its payload, at most.
BESIDE = 2_048


@dataclass(slots=True)
class Report:
    """How far an import has come. Of the lines stored or there already, `skipped` were not understood."""

    stored: int = 0
    duplicate: int = 0
    skipped: int = 0
    lines: list[dict[str, Any]] = field(default_factory=list)

    def take(self, imported: Sequence[Imported], stored: int) -> None:
        self.stored += stored
        self.duplicate += len(imported) - stored
        for line in imported:
            if line.detail:
                self.skipped += 1
                if len(self.lines) < REPORTED:
                    self.lines.append({"line": line.line, "detail": line.detail})

    @property
    def counts(self) -> dict[str, Any]:
        return {"stored": self.stored, "duplicate": self.duplicate, "skipped": self.skipped}

    def to_json(self) -> dict[str, Any]:
        return {**self.counts, "report": self.lines}


@dataclass(frozen=True, slots=True)
class Importing:
    """One file into one session, by a hosted writer."""

    hosting: Hosting
    caller: Caller
    scope: str
    session: str
    writer: str

    async def run(self, lines: Sequence[Unread]) -> Report:
        """Import all lines. Raises Problem, with what was done before: the same import again goes on from there."""
        report = Report()
        most = self.hosting.settings.max_ops_per_request
        for part in _parts(lines, min(LINES, most)):
            size = sum(len(line.text) for line in part)
            try:
                imported = await off_loop(size, self._read, part)
                report.take(imported, await self._write(imported, size))
            except Problem as problem:
                raise problem.beside(**report.counts) from problem
        return report

    def _read(self, part: Sequence[Unread]) -> list[Imported]:
        limits = self.hosting.settings.limits()
        imported = [import_line(line, self.writer, self.session) for line in part]
        for line in imported:
            if len(orjson.dumps(line.payload)) > limits["max_op_bytes"] - BESIDE:
                detail = f"an op with line {line.line} is larger than {limits['max_op_bytes']} bytes"
                raise Problem("too_large", detail, {"line": line.line, **limits})
        return imported

    async def _write(self, imported: Sequence[Imported], size: int) -> int:
        """Write those that are not there, and say how many."""
        write = storing(JOURNAL, self.session, self.writer, [line.payload for line in imported], size)
        return int(orjson.loads(await self.hosting.write(self.caller, self.scope, write))["stored"])


def _parts(lines: Sequence[Unread], most: int) -> Iterator[Sequence[Unread]]:
    """The lines, some at a time; a file without any is one empty part, for the caller's right is checked with it."""
    start = size = 0
    for at, line in enumerate(lines):
        if at - start >= most or (size and size + len(line.text) > CHARACTERS):
            yield lines[start:at]
            start, size = at, 0
        size += len(line.text)
    yield lines[start:]
