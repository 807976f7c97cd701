"""Journal files to payloads, and records or a state back to lines (server.md §8, journal.md §8.1–8.2)."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from foldpoint.admission import MAX_PAYLOAD_DEPTH
from foldpoint.canonical import Json, is_deeper
from foldpoint.journal.lines import Unread, split_lines, timestamp, write_line
from foldpoint.journal.ops import QUEUES, JournalOp, read_journal_op
from foldpoint.journal.records import Seen, read_record, source_line, write_payload
from foldpoint.journal.state import JournalState
from foldpoint.journal.view import SEEING, Message
from foldpoint.projection import recomputes, source_of
from foldpoint.state import Record


class Imported(NamedTuple):
    """A line and the payload that carries it. `detail` says why the line was not understood, else it is empty."""

    line: int
    payload: dict[str, Json]
    detail: str


def import_file(data: bytes, author: str, session: str) -> list[Imported]:
    """The payloads of a file's lines, in order; blank lines vanish. Raises Unreadable unless it is UTF-8."""
    return [import_line(line, author, session) for line in split_lines(data)]


def import_line(unread: Unread, author: str, session: str) -> Imported:
    """The payload of a line, which is the same with the same id at a second import.

    A line that is not understood is carried as it is, so that it counts as skipped and a newer server can read it.
    What counts in the conversation counts in the author's own entries: whoever wrote the file saw no others.
    """
    line = unread.read()
    fits = not is_deeper(line.text.encode(), MAX_PAYLOAD_DEPTH - 1)
    seen: Seen | None = {} if line.op is not None and line.op["op"] in SEEING else None
    source = source_of(line.number, line.text)
    payload = write_payload(author, session, line.op if fits else None, seen=seen, source=source)
    return Imported(line.number, payload, line.detail)


def export_records(records: Iterable[Record]) -> Iterator[bytes]:
    """The lines of a session's records, in their order; each with its LF.

    What one device wrote folds to the same state again. What several wrote may not: a line cannot say what its
    author had seen.
    """
    for record in records:
        ts, entry, payload = timestamp(record.hlc.wall_ms), read_record(record), record.value()
        if entry is not None:
            yield write_line(entry.op, ts)
        elif not isinstance(payload, dict) or not recomputes(record.hlc.device_id, payload):
            continue
        elif isinstance(foreign := payload.get("entry"), dict):
            yield write_line(foreign, ts)
        elif (line := source_line(payload)) is not None:
            yield line.encode() + b"\n"


def export_state(state: JournalState) -> Iterator[bytes]:
    """Lines that fold to this state, whoever wrote it, so that a harness can go on from it.

    Only the counts differ; and of the messages that no checkpoint covers, a file can only say so of those after
    the last that one covers.
    """
    ts = timestamp(state.at.hlc.wall_ms if state.at else 0)
    for op in _ops_of(state, ts):
        yield write_line(read_journal_op(op), ts)


def _ops_of(state: JournalState, ts: str) -> Iterator[JournalOp]:
    for frame in state.view.undo_stack:
        yield from _said(frame.messages, ts)
        yield {"op": "rewind", "to": 0}
    messages, bare = state.view.messages, {message.id for message in state.unpersisted()}
    kept = max((index for index, message in enumerate(messages, 1) if message.id not in bare), default=0)
    yield from _said(messages[:kept], ts)
    if state.checkpoint_messages is not None:
        yield {"op": "checkpoint", "messages": state.checkpoint_messages}
    elif kept:
        yield from ({"op": "rewind", "to": kept}, {"op": "unrewind"})
    yield from _said(messages[kept:], ts)
    for queue in QUEUES:
        yield from ({"op": "enqueue", "queue": queue, "text": queued.text} for queued in state.view.queues[queue])
    if state.plan:
        yield {"op": "plan", "steps": state.plan}
    yield from ({"op": "rename", "from": old, "to": new} for old, new in state.renames)
    for before, after, original in state.upgrades:
        yield {"op": "upgrade", "from_version": before, "to_version": after, "original": original}
    yield from ({"op": "model_change", "record": change} for change in state.model_changes)
    yield from ({"op": "usage", "record": usage} for usage in state.usage)


def _said(messages: Iterable[Message], ts: str) -> Iterator[JournalOp]:
    return ({"op": "message", "message": {"supercode_turn": 1, "ts": ts, **said.value}} for said in messages)
