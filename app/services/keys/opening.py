"""Sealed ops as the state folds them, once their scope is unlocked (server.md §9)."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

from app.services.pushing.arrivals import record_stream
from app.services.pushing.folding import Numbers, fold_into_records
from app.sql import records
from app.sql.records import Event
from app.sql.transactions import Driver
from app.sql.writes import Writes
from foldpoint.envelope import is_well_formed
from foldpoint.op import Op
from foldpoint.seal import Keyring, Outcome, opened_payload
from foldpoint.state import record_of
from foldpoint.surfaces import intent, surface_of


class Opened(NamedTuple):
    """Sealed ops as they are folded; those left out are not among `ops`.

    `opened` counts the envelopes that were opened, `lacking` the intents that are closed for want of a key, and
    `settled` the others of those that are closed in a locked scope.
    """

    ops: list[Op]
    opened: int
    lacking: int
    settled: int

    @classmethod
    def of(cls, sealed: Iterable[Op], keyring: Keyring) -> Self:
        ops: list[Op] = []
        opened = lacking = settled = 0
        for op in sealed:
            opening = opened_payload(op, keyring)
            opened += opening.outcome is Outcome.OPENED
            if op.surface == intent.SURFACE.name and is_well_formed(op.payload):
                lacking += opening.outcome is Outcome.LACKS_KEY
                settled += opening.outcome is not Outcome.LACKS_KEY
            if (folded := opening.folded(op)) is not None:
                ops.append(folded)
        return cls(ops, opened, lacking, settled)

    async def fold(self, pg: Driver, writes: Writes, scope: int, numbers: Numbers) -> None:
        """Bring the folded state up to date, under the scope's lock."""
        await records.put_events(pg, writes, scope, self._events(numbers))
        await fold_into_records(pg, writes, scope, self.ops, numbers)

    def _events(self, numbers: Numbers) -> Sequence[Event]:
        """Ops of event streams: their rows hold envelopes, so that each has a record of its own."""
        return [
            Event(surface_of(op.surface), record_stream(op), record_of(op), numbers[op.device_id])
            for op in self.ops
            if surface_of(op.surface).event_stream
        ]
