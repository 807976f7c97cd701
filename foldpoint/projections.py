"""The three projections in one table: which ops are theirs, and what of each stream (server.md §8)."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from foldpoint import run_ledger
from foldpoint.canonical import Json
from foldpoint.journal import handles
from foldpoint.journal import records as journal
from foldpoint.op import Op
from foldpoint.projection import recomputes
from foldpoint.run_ledger.entry import run_of
from foldpoint.state import Record, record_of
from foldpoint.stored_message import ops as context


def _no_label(_record: Record) -> None:
    return None


class Projection(NamedTuple):
    """`number` is how it is stored; `stream_of` the stream that a payload names, `label_of` the name that a record
    gives its stream, if they do."""

    number: int
    kind: str
    stream_of: Callable[[Json], str | None]
    label_of: Callable[[Record], str | None] = _no_label

    @property
    def tag(self) -> str:
        """The tag of the surface that carries it."""
        return "registry:" + self.kind


JOURNAL = Projection(1, journal.KIND, journal.session_of, handles.handle_given)
RUN_LEDGER = Projection(2, run_ledger.KIND, run_of)
CONTEXT = Projection(3, context.KIND, context.session_of)
PROJECTIONS = (JOURNAL, RUN_LEDGER, CONTEXT)
BY_TAG = {projection.tag: projection for projection in PROJECTIONS}


class Entry(NamedTuple):
    """One record of a stream. `id` is its payload's; an op whose id does not recompute is an entry by its op id.

    So nobody takes another's place, though in the registry the later of two ops with one id hides the other.
    """

    projection: Projection
    stream: str
    id: bytes
    record: Record

    @property
    def label(self) -> str | None:
        return self.projection.label_of(self.record)


def entries_of(ops: Iterable[Op]) -> list[Entry]:
    """The entries in these ops, in their order; what an author wrote again comes again."""
    found = []
    for op in ops:
        projection = BY_TAG.get(op.surface)
        if projection is not None and (stream := projection.stream_of(op.payload)) is not None:
            found.append(Entry(projection, stream, _id_of(op), record_of(op)))
    return found


def _id_of(op: Op) -> bytes:
    payload = op.payload
    if isinstance(payload, dict) and recomputes(op.device_id, payload):
        return bytes.fromhex(str(payload["id"]))
    return bytes.fromhex(op.op_id.removeprefix("op-"))
