"""Session journals (journal.md)."""

from app.problems import Problem
from app.services.projections.streams import Folded
from app.sql.entries import Place
from foldpoint.canonical import Json
from foldpoint.journal.fold import RECENT, fold_onto
from foldpoint.journal.snapshot import Snapshot, read_snapshot, write_snapshot
from foldpoint.journal.state import JournalState
from foldpoint.journal.views import Entangled
from foldpoint.projections import JOURNAL
from foldpoint.state import Record

#: Of large records a snapshot leaves out those of so many bytes.
RECENT_BYTES = 4 * 1024 * 1024


class JournalFold:
    """Folds a session's records to its JournalState."""

    projection = JOURNAL

    def start(self) -> Snapshot:
        return Snapshot()

    def read(self, text: bytes) -> Snapshot:
        return read_snapshot(text)

    def write(self, snapshot: Snapshot) -> bytes:
        return write_snapshot(snapshot)

    def place(self, snapshot: Snapshot) -> Place | None:
        at = snapshot.state.at
        return None if at is None else (at.hlc, at.op_id)

    def told(self, now: JournalState) -> Json:
        return now.to_json()

    def extend(self, _stream: str, snapshot: Snapshot, records: list[Record]) -> Folded[JournalState, Snapshot]:
        try:
            folded = fold_onto(snapshot, records, _recent(records))
        except Entangled as error:
            raise Problem("unavailable", str(error)) from error
        return Folded(folded.state, folded.snapshot)


def _recent(records: list[Record]) -> int:
    """How many of the last records a snapshot leaves out: not more than are at hand to be folded again."""
    size = 0
    for count, record in enumerate(reversed(records[-RECENT:])):
        size += len(record.payload)
        if size > RECENT_BYTES:
            return count
    return RECENT


FOLD = JournalFold()
