"""Journal entries as payloads of a registry, which every device carries (server.md §8).

`{"id", "session", "entry": {"op": …}, "seen"?, "source"?}`. `id` is `payload_id` of the rest under its author. So
two payloads of one author that are equal are one entry: what is the same and yet happened twice needs a `source`
that differs. An imported line's is `{"line": number, "text": line}`. A payload without `entry` carries only its
source line: one that was not understood, or that nests too deeply to be carried as JSON. What the server writes for a
hosted writer has a `{"nonce"}`, and a claim's also says what it handed out (`claims`).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from foldpoint.canonical import U64_MAX, Json, Unreadable
from foldpoint.hlc import U32_MAX, Hlc
from foldpoint.hosted import is_hosted
from foldpoint.journal.lines import read_line
from foldpoint.journal.ops import JournalOp, read_journal_op
from foldpoint.journal.shapes import within
from foldpoint.projection import author_of, payload_id, recomputes
from foldpoint.state import Record

KIND = "foldpoint.journal"
#: The tag of the surface.
SURFACE = "registry:" + KIND

#: wall_ms and counter of a stamp, which order what one device wrote.
Stamp = tuple[int, int]
Seen = Mapping[str, Stamp]

_wall_ms, _counter = within(0, U64_MAX), within(0, U32_MAX)


class Entry(NamedTuple):
    """One entry that was understood. `seen` is how far its author had folded each device; None: all before it.

    `claimed` are the ids of the queue entries that a claim's dequeue was written for.
    """

    id: str
    hlc: Hlc
    op_id: str
    author: str
    op: JournalOp
    seen: Seen | None = None
    claimed: frozenset[str] | None = None

    @property
    def stamp(self) -> Stamp:
        return self.hlc[:2]


def session_of(payload: Json) -> str | None:
    """The stream a payload belongs to; a session's key is any string but the empty one (journal.md §8.1)."""
    session = payload.get("session") if isinstance(payload, dict) else None
    return session if isinstance(session, str) and session else None


def write_payload(
    author: str, session: str, op: JournalOp | None, *, seen: Seen | None = None, source: Json = None
) -> dict[str, Json]:
    """The payload of an entry, with its id."""
    payload: dict[str, Json] = {"session": session}
    if op is not None:
        payload["entry"] = op
    if seen is not None:
        payload["seen"] = {device: list(stamp) for device, stamp in seen.items()}
    if source is not None:
        payload["source"] = source
    return {"id": payload_id(author, payload), **payload}


def source_line(payload: Mapping[str, Any]) -> str | None:
    """The line that a payload was imported from."""
    source = payload.get("source")
    line = source.get("text") if isinstance(source, dict) else None
    return line if isinstance(line, str) and "\n" not in line else None


def read_record(record: Record) -> Entry | None:
    """The entry of a folded record; None if its id does not recompute or it is not understood."""
    payload = record.value()
    if not isinstance(payload, dict) or not recomputes(record.hlc.device_id, payload):
        return None
    try:
        op, seen = read_op(payload), read_seen(payload.get("seen"))
    except Unreadable:
        return None
    device = record.hlc.device_id
    claimed = _claimed(payload) if is_hosted(device) and op["op"] == "dequeue" else None
    return Entry(payload["id"], record.hlc, record.op_id, author_of(device), op, seen, claimed)


def _claimed(payload: Mapping[str, Any]) -> frozenset[str] | None:
    """What a payload says it was written for, if it is a claim's: only the server writes on hosted chains."""
    source = payload.get("source")
    ids = source.get("claim") if isinstance(source, dict) else None
    return frozenset(name for name in ids if _is_id(name)) if isinstance(ids, list) else None


def _is_id(value: Json) -> bool:
    return isinstance(value, str) and len(value) == 64 and not set(value) - set("0123456789abcdef")


def read_op(payload: Mapping[str, Any]) -> JournalOp:
    """The op that a payload carries, as JSON or as its source line. Raises Unreadable."""
    if "entry" in payload:
        return read_journal_op(payload["entry"], "entry.")
    line = source_line(payload)
    if line is None:
        raise Unreadable("missing", "entry")
    return read_line(line)


def read_seen(value: Json) -> dict[str, Stamp] | None:
    """How far each device was seen, if it is said. Raises Unreadable."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise Unreadable("expected an object of device to stamp", "seen")
    return {device: _read_stamp(stamp, "seen." + device) for device, stamp in value.items()}


def _read_stamp(value: Json, path: str) -> Stamp:
    if not isinstance(value, list) or len(value) != 2:
        raise Unreadable("expected [wall_ms, counter]", path)
    return _wall_ms(value[0], path), _counter(value[1], path)
