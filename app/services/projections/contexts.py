"""Contexts of stored messages (stored-message.md)."""

from app.services.projections.streams import Folded
from app.sql.entries import Place
from foldpoint.canonical import Json
from foldpoint.projections import CONTEXT
from foldpoint.state import Record
from foldpoint.stored_message.session import SessionContext, read_snapshot


class ContextFold:
    """Folds a session's records to its context, which is its own snapshot."""

    projection = CONTEXT

    def start(self) -> SessionContext:
        return SessionContext()

    def read(self, text: bytes) -> SessionContext:
        return read_snapshot(text)

    def write(self, snapshot: SessionContext) -> bytes:
        return snapshot.text()

    def place(self, snapshot: SessionContext) -> Place | None:
        return snapshot.stamp

    def told(self, now: SessionContext) -> Json:
        return [now.to_json(), sorted(now.removed), sorted(now.pending)]

    def extend(
        self, _stream: str, snapshot: SessionContext, records: list[Record]
    ) -> Folded[SessionContext, SessionContext]:
        context = snapshot.extend(records)
        return Folded(context, context)


FOLD = ContextFold()
