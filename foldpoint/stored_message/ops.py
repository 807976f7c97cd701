"""The ops on a session's context, and the records that carry them (stored-message.md §11, server.md §8)."""

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from foldpoint.canonical import MAX_TEXT_DEPTH, Json, is_deeper
from foldpoint.hlc import Hlc
from foldpoint.projection import payload_id, recomputes
from foldpoint.state import Record
from foldpoint.stored_message.content import check_body
from foldpoint.stored_message.digest import canonical_bytes
from foldpoint.stored_message.live import restore_message
from foldpoint.stored_message.message import MESSAGE, PARTITION, Partition, StoredMessage
from foldpoint.stored_message.refusals import Incompatible, Kind, Malformed, Refused
from foldpoint.stored_message.shapes import Field, integer, required, string, struct, tagged
from foldpoint.stored_message.writing import canonical_message, write_body

#: The kind of the registry whose records are these ops.
KIND = "foldpoint.context"
#: What orders ops: the stamp and the op id of the record.
Key = tuple[Hlc, str]

#: Containers that a checkpoint's text may hold within a body, which lies in five.
_MAX_DEPTH = MAX_TEXT_DEPTH - 5


class Put(NamedTuple):
    """A message, new or changed, and its place. `id` is the payload's."""

    id: str
    key: Key
    message_id: str
    pos: int
    message: StoredMessage


class Move(NamedTuple):
    id: str
    key: Key
    message_id: str
    partition: Partition
    pos: int


class Remove(NamedTuple):
    id: str
    key: Key
    message_id: str


ContextOp = Put | Move | Remove

_FIELDS: dict[str, dict[str, Field]] = {
    "put": {"message_id": required(string), "pos": required(integer), "message": required(MESSAGE)},
    "move": {"message_id": required(string), "partition": required(PARTITION), "pos": required(integer)},
    "remove": {"message_id": required(string)},
}
_BODY = tagged("op", _FIELDS)
_SHAPES = {name: (fields, struct(fields)) for name, fields in _FIELDS.items()}


def session_of(payload: Json) -> str | None:
    """The session that a payload belongs to."""
    session = payload.get("session") if isinstance(payload, dict) else None
    return session if isinstance(session, str) else None


def admit(body: Json) -> dict[str, Any]:
    """The op of a hosted call as its payload holds it, the message in its canonical spelling. Raises Refused."""
    op: dict[str, Any] = _BODY(body, "")
    if "message" in op:
        try:
            check_message(op["message"])
            op["message"] = canonical_message(op["message"])
        except Incompatible as error:
            raise Incompatible(error.detail, f"message.{error.path}".removesuffix(".")) from error
    return op


def write_payload(author: str, session: str, op: Mapping[str, Any], source: Json = None) -> dict[str, Json]:
    """The payload of an op as `admit` gives it. `source` is what tells two equal ops of one author apart."""
    payload: dict[str, Json] = {"session": session, **op}
    if source is not None:
        payload["source"] = source
    return {"id": payload_id(author, payload), **payload}


def check_message(message: StoredMessage) -> None:
    """All gates, for the message as it is and as a checkpoint will hold it. Raises Incompatible."""
    body = message["body"]
    check_body(body)
    check_body(write_body(restore_message(message["role"], body, message["tool_calls"])))
    if body["form"] == "structured" and is_deeper(canonical_bytes(cast(Json, body)), _MAX_DEPTH):
        raise Incompatible(f"more than {_MAX_DEPTH} nested containers", "body")


def read_op(record: Record) -> ContextOp | None:
    """The op of a folded record; None for what the projection skips. Keys that the op does not need are ignored."""
    payload = record.value()
    if not isinstance(payload, dict) or not recomputes(record.hlc.device_id, payload):
        return None
    try:
        string(payload.get("session"), "session")
        return _read_body(payload, record[:2])
    except Refused:
        return None


def _read_body(payload: Mapping[str, Any], key: Key) -> ContextOp:
    name = string(payload.get("op"), "op")
    if name not in _SHAPES:
        raise Malformed(Kind.UNKNOWN_VARIANT, "unknown op", "op")
    fields, shape = _SHAPES[name]
    body = shape({field: payload[field] for field in fields if field in payload}, "")
    if name == "put":
        check_message(body["message"])
        return Put(payload["id"], key, **body)
    return Move(payload["id"], key, **body) if name == "move" else Remove(payload["id"], key, **body)
