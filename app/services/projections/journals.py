"""Session journals (journal.md)."""

from app.problems import Problem
from app.services.projections.streams import Fold, Folded
from app.sql.entries import Place
from foldpoint.journal.fold import RECENT, fold_onto
from foldpoint.journal.snapshot import Snapshot, read_snapshot, write_snapshot
from foldpoint.journal.state import JournalState
from foldpoint.journal.views import Entangled
from foldpoint.projections import JOURNAL
from foldpoint.state import Record

#: Of large records a snapshot leaves out those of so many bytes.
RECENT_BYTES = 4 * 1024 * 1024


def _place(snapshot: Snapshot) -> Place | None:
    at = snapshot.state.at
    return None if at is None else (at.hlc, at.op_id)


def _extend(_stream: str, snapshot: Snapshot, records: list[Record]) -> Folded[JournalState, Snapshot]:
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


FOLD = Fold(JOURNAL, Snapshot, read_snapshot, write_snapshot, _place, JournalState.to_json, _extend)
