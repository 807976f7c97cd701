"""Run ledgers (run-ledger.md)."""

import orjson

from app.services.streams import Folded
from app.sql.entries import Place
from foldpoint.canonical import Json, canonical
from foldpoint.projections import RUN_LEDGER
from foldpoint.run_ledger.merge import Merged, merge
from foldpoint.run_ledger.snapshot import Snapshot, read_snapshot
from foldpoint.state import Record


class RunLedgerFold:
    """Merges a run's records."""

    projection = RUN_LEDGER

    def start(self) -> Snapshot:
        return Snapshot()

    def read(self, text: bytes) -> Snapshot:
        return read_snapshot(orjson.loads(text))

    def write(self, snapshot: Snapshot) -> bytes:
        return canonical(snapshot.to_json())

    def place(self, snapshot: Snapshot) -> Place | None:
        return snapshot.through

    def told(self, now: Merged) -> Json:
        return [now.state.to_json(), now.blocked_at, now.sealed, now.epoch]

    def extend(self, stream: str, snapshot: Snapshot, records: list[Record]) -> Folded[Merged, Snapshot]:
        merged = merge(stream, records, snapshot)
        return Folded(merged, merged.settle()[0] if records else snapshot)


FOLD = RunLedgerFold()
