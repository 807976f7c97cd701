"""What hosted writers say of a session, read as strictly as the crate reads lines (server.md §11)."""

from typing import Any, NamedTuple

import orjson

from foldpoint.admission import MAX_PAYLOAD_DEPTH
from foldpoint.canonical import Json, Repeats, Unreadable, is_deeper, repeats_keys
from foldpoint.journal.claims import MOST
from foldpoint.journal.ops import KINDS, QUEUES, JournalOp, read_journal_op
from foldpoint.journal.records import Seen, read_seen, write_payload
from foldpoint.journal.shapes import Field, one_of, refuse_repeated, text, within
from foldpoint.journal.view import SEEING

#: What `seen` says that means all there is when the entries are written.
NOW = "now"
_ENTRY = (Field("op", text), Field("supercode_journal", text), Field("ts", text))


class Appending(NamedTuple):
    """Entries to append. `now` is whether their author has seen all there is by then, and `seen` what else."""

    session: str
    ops: list[JournalOp]
    seen: Seen | None
    now: bool

    def payloads(self, author: str, seen: Seen | None, nonce: str) -> list[dict[str, Json]]:
        """Their payloads; no two are alike, nor those of two calls. Of a message it does not matter what was seen."""
        return [
            write_payload(
                author,
                self.session,
                op,
                seen=seen if op["op"] in SEEING else None,
                source={"nonce": f"{nonce}-{index}"},
            )
            for index, op in enumerate(self.ops)
        ]


def read_session(value: Json, path: str = "session") -> str:
    """Raises Unreadable; a session's key is any string but the empty one."""
    if not isinstance(value, str) or not value:
        raise Unreadable("expected a string that is not empty", path)
    return value


def read_append(fields: dict[str, Any], body: bytes) -> Appending:
    """The fields of an append, which `body` reads as. Raises Unreadable where a line's reader would skip the line."""
    entries = fields.get("entries")
    if not isinstance(entries, list) or not entries:
        raise Unreadable("expected a list of entries", "entries")
    ops = [_read_entry(entry, f"entries[{index}]") for index, entry in enumerate(entries)]
    if repeats_keys(body, fields):
        _refuse_repeats(Repeats.read(body), ops)
    seen = fields.get("seen")
    now = seen == NOW
    return Appending(read_session(fields.get("session")), ops, None if now else read_seen(seen), now)


def _read_entry(value: Json, path: str) -> JournalOp:
    if not isinstance(value, dict):
        raise Unreadable("expected an object", path)
    op = read_journal_op(value, path + ".")
    if "ts" in value:
        text(value["ts"], path + ".ts")
    if is_deeper(orjson.dumps(op), MAX_PAYLOAD_DEPTH - 1):
        raise Unreadable(f"more than {MAX_PAYLOAD_DEPTH - 1} nested containers", path)
    return op


def _refuse_repeats(body: Any, ops: list[JournalOp]) -> None:
    body.refuse(("writer", "session", "entries", "seen"))
    for index, op in enumerate(ops):
        refuse_repeated(_ENTRY + KINDS[op["op"]], body["entries"][index], f"entries[{index}].")
    if isinstance(body.get("seen"), Repeats):
        body["seen"].refuse(body["seen"].repeated, "seen.")


class Claiming(NamedTuple):
    """A claim of the next entries of a queue, `most` at most."""

    session: str
    queue: str
    most: int


_queue, _most = one_of(*QUEUES), within(1, MOST)


def read_claim(fields: dict[str, Any]) -> Claiming:
    """Raises Unreadable."""
    session = read_session(fields.get("session"))
    return Claiming(session, _queue(fields.get("queue"), "queue"), _most(fields.get("count"), "count"))
