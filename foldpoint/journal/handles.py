"""Sessions by the name that their users gave them (journal.md §8.4)."""

from collections.abc import Mapping
from typing import NamedTuple

from foldpoint.journal.records import read_record
from foldpoint.journal.state import Place
from foldpoint.state import Record


class Renamed(NamedTuple):
    """The last rename of a session: its handle now, and the place of that rename."""

    handle: str
    at: Place


def sessions_named(handle: str, renamed: Mapping[str, Renamed]) -> list[str]:
    """The sessions of a handle: the one whose rename sorts last, then the alternatives."""
    found = [(last.at, session) for session, last in renamed.items() if last.handle == handle]
    return [session for _, session in sorted(found, reverse=True)]


def handle_given(record: Record) -> str | None:
    """The handle that a record gives its session, if it is a rename."""
    if b'"rename"' not in record.payload:
        return None
    entry = read_record(record)
    return entry.op["to"] if entry is not None and entry.op["op"] == "rename" else None
