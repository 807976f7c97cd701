"""A ledger file into a run, part by part, each in a transaction of its own (run-ledger.md §2, server.md §8)."""

from typing import Any

import orjson

from app.problems import Problem
from app.services.access import Caller
from app.services.hosting import Hosting, Write
from app.services.projections.writes import storing
from app.services.pushing.arrivals import off_loop
from foldpoint.projection import source_of
from foldpoint.projections import RUN_LEDGER
from foldpoint.run_ledger.entry import entry_payload
from foldpoint.run_ledger.lines import Imported, import_parts

#: Lines of one transaction, and about how many bytes.
LINES, BYTES = 1_000, 1024 * 1024
#: So many lines that were skipped are told one by one.
TOLD = 100


async def import_file(
    hosting: Hosting, caller: Caller, scope: str, writer: str, run: str, text: bytes
) -> dict[str, Any]:
    """Record the lines of a file that are the run's; those that were imported before are not written again.

    Raises Problem, which says how far it came: what is stored stays, and the same file goes on from there.
    """
    report: dict[str, Any] = {"stored": 0, "duplicate": 0, "skipped": 0, "report": []}
    parts = import_parts(text, run, min(LINES, hosting.settings.max_ops_per_request), BYTES)
    part: Imported | None = Imported([], [])
    while part is not None:
        try:
            written = await hosting.write(caller, scope, await off_loop(BYTES, _write, part, writer, run))
        except Problem as problem:
            raise problem.beside(**report) from problem
        for name, count in orjson.loads(written).items():
            report[name] += count
        report["skipped"] += len(part.skipped)
        report["report"] += [skipped.to_json() for skipped in part.skipped[: TOLD - len(report["report"])]]
        part = await off_loop(BYTES, next, parts, None)
    return report


def _write(part: Imported, writer: str, run: str) -> Write:
    payloads = [entry_payload(writer, line.record, source_of(line.number, line.text)) for line in part.lines]
    return storing(RUN_LEDGER, run, writer, payloads, sum(len(line.text) for line in part.lines))
