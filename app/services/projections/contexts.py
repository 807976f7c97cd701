"""Contexts of stored messages (stored-message.md)."""

from app.services.projections.streams import Fold, Folded
from foldpoint.canonical import Json
from foldpoint.projections import CONTEXT
from foldpoint.state import Record
from foldpoint.stored_message.session import SessionContext, read_snapshot


def _told(now: SessionContext) -> Json:
    return [now.to_json(), sorted(now.removed), sorted(now.pending)]


def _extend(_stream: str, context: SessionContext, records: list[Record]) -> Folded[SessionContext, SessionContext]:
    later = context.extend(records)
    return Folded(later, later)


#: A session's context is its own snapshot.
FOLD = Fold(CONTEXT, SessionContext, read_snapshot, SessionContext.text, lambda context: context.stamp, _told, _extend)
