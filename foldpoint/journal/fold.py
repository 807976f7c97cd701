"""The fold of one session's records, in (hlc, op_id) order (journal.md §3.2, §8.4)."""

from collections.abc import Iterable
from typing import NamedTuple

from foldpoint.hlc import Hlc
from foldpoint.journal.lines import read_lines
from foldpoint.journal.records import Entry, read_record
from foldpoint.journal.snapshot import Snapshot
from foldpoint.journal.state import Delivery, JournalState, Place
from foldpoint.journal.view import JUDGED, VIEWED
from foldpoint.journal.views import Views
from foldpoint.projection import BelowSnapshot
from foldpoint.state import Record

#: Records that a new snapshot leaves out. A record may come so late, or be written so long after what its author had
#: seen, that it still concerns these.
RECENT = 256


class Folded(NamedTuple):
    """A state, and the snapshot to go on from later, which holds fewer records."""

    state: JournalState
    snapshot: Snapshot


def fold_journal(records: Iterable[Record]) -> JournalState:
    """The state of a session. Raises Entangled.

    `records` are those of its stream as the registry folds them: one per payload id.
    """
    return fold_onto(Snapshot(), records).state


def fold_onto(snapshot: Snapshot, records: Iterable[Record], recent: int = RECENT) -> Folded:
    """What folding the snapshot's records and then these gives. Raises Entangled, or BelowSnapshot if it cannot tell.

    `records` are all above the snapshot's place. The new snapshot leaves the last `recent` of them out. A snapshot
    is void once a record comes that sorts below its place, or one of its records is replaced, that is written again
    by its author: then fold from the beginning, as after BelowSnapshot.
    """
    placed = [(Place(record.hlc, record.op_id), read_record(record)) for record in records]
    if snapshot.state.at is not None and placed and placed[0][0] <= snapshot.state.at:
        raise BelowSnapshot
    return _fold(snapshot, placed, len(placed) - recent)


def fold_file(data: bytes) -> JournalState:
    """The state of a journal file, as the crate folds it. Raises Unreadable unless it is UTF-8 (§2.1)."""
    placed = []
    for line in read_lines(data):
        place = Place(Hlc(0, line.number, ""), "")
        placed.append((place, None if line.op is None else Entry(str(line.number), *place, "", line.op)))
    return _fold(Snapshot(), placed, 0).state


def _fold(snapshot: Snapshot, placed: list[tuple[Place, Entry | None]], cut: int) -> Folded:
    """Fold, and take a new snapshot of what comes before `cut`, if anything does."""
    apart = any(entry and entry.seen is not None and entry.op["op"] in JUDGED for _, entry in placed)
    fold = _Fold(snapshot, apart=apart)
    if cut <= 0:
        fold.take_all(placed)
        return Folded(fold.state, snapshot)
    fold.take_all(placed[:cut])
    state, taken, start = fold.state.copy(), dict(fold.taken), len(fold.views.judged)
    fold.take_all(placed[cut:])
    judged = fold.views.found_above(start, state.view)
    meant = {target for targets in judged.values() for target in targets}
    return Folded(fold.state, Snapshot(state, judged, {entry: taken[entry] for entry in taken.keys() & meant}))


class _Fold:
    """A fold on its way: the state, and who took which queue entries."""

    def __init__(self, snapshot: Snapshot, *, apart: bool) -> None:
        self.state = snapshot.state.copy()
        self.views = Views(self.state.view, snapshot.judged, apart)
        self.taken = dict(snapshot.taken)

    def take_all(self, placed: Iterable[tuple[Place, Entry | None]]) -> None:
        for place, entry in placed:
            self.state.at = place
            if entry is None:
                self.state.skipped += 1
            else:
                self.state.records += 1
                self._take(entry)

    def _take(self, entry: Entry) -> None:
        kind = entry.op["op"]
        if kind == "dequeue":
            self._dequeue(entry)
        elif kind in VIEWED:
            self.views.advance(entry)
            if kind in JUDGED:
                self.state.rebase()
        elif kind == "checkpoint":
            self.state.check(entry)
        else:
            self.state.note(entry)

    def _dequeue(self, entry: Entry) -> None:
        targets, taken = self.views.advance(entry)
        if entry.claimed is not None:
            missed = (queued for queued in taken if queued.id not in entry.claimed)
            self.state.undelivered[entry.op["queue"]].extend(missed)
        for queued in taken:
            self.taken[queued.id] = Delivery(entry.op["queue"], queued.id, queued.text, ())
        for target in targets:
            before = self.taken[target]
            self.taken[target] = delivery = before._replace(dequeues=(*before.dequeues, entry.id))
            if before.dequeues:
                self.state.double_delivery[target] = delivery
