"""The context of one session: the fold of its ops, and the snapshot to go on from (stored-message.md §11)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Any, NamedTuple

import orjson

from foldpoint.canonical import Json, Unreadable, canonical
from foldpoint.hlc import Hlc
from foldpoint.projection import BelowSnapshot
from foldpoint.state import Record
from foldpoint.stored_message.message import Partition, StoredMessage
from foldpoint.stored_message.ops import ContextOp, Key, Move, Put, Remove, read_op

#: Of the form and of the fold: what another fold made is not to be gone on with.
VERSION = 1
_DIGEST_BYTES = 64


class Status(StrEnum):
    """What became of an op."""

    APPLIED = "applied"
    #: A move whose message is not there yet.
    PENDING = "pending"
    #: A put or a move of a message that was removed, before or after it.
    REMOVED = "removed"


class Entry(NamedTuple):
    """A message of the session: what its newest put says, where its newest put or move places it.

    `first` is the key of its first put, which orders messages of one `pos`.
    """

    first: Key
    first_id: str
    is_only_put: bool
    message: StoredMessage
    partition: Partition
    pos: int


@dataclass(frozen=True, slots=True)
class SessionContext:
    """What the records of a session fold to; `stamp` is the key of the newest of them."""

    stamp: Key | None = None
    entries: Mapping[str, Entry] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()
    #: Messages that were moved, but are not there yet.
    pending: frozenset[str] = frozenset()

    def extend(self, records: Iterable[Record]) -> "SessionContext":
        """The context with later records. Raises BelowSnapshot if they are not all later.

        A payload that its author wrote again takes the place of what it was: that raises it too if a first put moves.
        """
        fresh = sorted(records)
        if not fresh:
            return self
        if self.stamp is not None and fresh[0][:2] <= self.stamp:
            raise BelowSnapshot
        latest = {op.id: op for record in fresh if (op := read_op(record))}
        entries, removed, moved = dict(self.entries), set(self.removed), set(self.pending)
        for op in sorted(latest.values(), key=lambda op: op.key):
            _apply(op, entries, removed)
            if isinstance(op, Move):
                moved.add(op.message_id)
        return SessionContext(fresh[-1][:2], entries, frozenset(removed), frozenset(moved - entries.keys() - removed))

    def message_ids(self) -> list[str]:
        """In the order of the messages: system before history, then by pos, first put and id."""
        return sorted(self.entries, key=self._place)

    def _place(self, message_id: str) -> tuple[bool, int, Key, str]:
        entry = self.entries[message_id]
        return entry.partition == "history", entry.pos, entry.first, message_id

    def messages(self) -> list[StoredMessage]:
        placed = (self.entries[message_id] for message_id in self.message_ids())
        return [{**entry.message, "partition": entry.partition} for entry in placed]

    def to_json(self) -> dict[str, Any]:
        """The answer of `GET /contexts?session=` (server.md §11); totals are sums of what messages carry."""
        messages = self.messages()
        tokens = {"system": 0, "knowledge": 0, "history": 0}
        for message in messages:
            tokens[message["partition"]] += message["tokens"]
        history_len = sum(message["partition"] == "history" for message in messages)
        return {"messages": messages, "partition_tokens": tokens, "history_len": history_len}

    def status(self, op: ContextOp) -> Status:
        """What became of one of the ops that are folded here."""
        if isinstance(op, Remove):
            return Status.APPLIED
        if op.message_id in self.removed:
            return Status.REMOVED
        return Status.APPLIED if op.message_id in self.entries else Status.PENDING

    def text(self) -> bytes:
        """The snapshot: canonical JSON behind its digest."""
        text = canonical(
            {
                "version": VERSION,
                "stamp": self.stamp and _key_json(self.stamp),
                "entries": {
                    message_id: [_key_json(first), *rest] for message_id, (first, *rest) in self.entries.items()
                },
                "removed": sorted(self.removed),
                "pending": sorted(self.pending),
            }
        )
        return _digest(text) + text


def fold(records: Iterable[Record]) -> SessionContext:
    """The context of a session from all of its records, in any order and however often they come."""
    return SessionContext().extend(records)


def read_snapshot(text: bytes) -> SessionContext:
    """The context whose `text` this is. Raises Unreadable for a text that does not verify, or of another version."""
    found, text = text[:_DIGEST_BYTES], text[_DIGEST_BYTES:]
    if found != _digest(text):
        raise Unreadable("the digest does not recompute")
    snapshot = orjson.loads(text)
    if snapshot.get("version") != VERSION:
        raise Unreadable("another version", "version")
    return SessionContext(
        snapshot["stamp"] and _read_key(snapshot["stamp"]),
        {message_id: Entry(_read_key(first), *rest) for message_id, (first, *rest) in snapshot["entries"].items()},
        frozenset(snapshot["removed"]),
        frozenset(snapshot["pending"]),
    )


def _digest(text: bytes) -> bytes:
    return sha256(text).hexdigest().encode()


def _apply(op: ContextOp, entries: dict[str, Entry], removed: set[str]) -> None:
    """Take the next op in key order."""
    if isinstance(op, Remove):
        removed.add(op.message_id)
        entries.pop(op.message_id, None)
    elif op.message_id in removed:
        return
    elif isinstance(op, Put):
        entries[op.message_id] = _put(op, entries.get(op.message_id))
    elif held := entries.get(op.message_id):
        entries[op.message_id] = held._replace(partition=op.partition, pos=op.pos)


def _put(op: Put, held: Entry | None) -> Entry:
    partition = op.message["partition"]
    if held is None or (held.is_only_put and held.first_id == op.id):
        return Entry(op.key, op.id, True, op.message, partition, op.pos)
    if held.first_id == op.id:
        raise BelowSnapshot
    return held._replace(message=op.message, partition=partition, pos=op.pos, is_only_put=False)


def _key_json(key: Key) -> Json:
    return [*key[0], key[1]]


def _read_key(value: list[Any]) -> Key:
    wall_ms, counter, device_id, op_id = value
    return Hlc(wall_ms, counter, device_id), op_id
