"""From a request's body to ops in seq order, read and hashed one by one (server.md §3)."""

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from app.sql.keys import raw_op_id, stream_key
from app.sql.ops import NewOp
from foldpoint.admission import read_admissible
from foldpoint.canonical import Json, Unreadable
from foldpoint.op import Op
from foldpoint.relay import Refusal
from foldpoint.surfaces import conversation, surface_of


class BodyUnreadable(ValueError):
    """The body is no JSON array at all, so nothing of it was taken."""


class Sent(NamedTuple):
    """One element of a request: its place in the array, and its text."""

    place: int
    text: bytes


class Arrival(NamedTuple):
    """An op that was read, with what storage needs of it."""

    place: int
    op: Op
    computed_id: str
    body: bytes
    payload_at: int

    def row(self, device: int) -> NewOp:
        """The row, for this device number, of an op whose id was verified."""
        surface = surface_of(self.op.surface)
        stream = stream_of(self.op) if surface.event_stream else None
        return NewOp(device, self.op, self.body, self.payload_at, surface.number, stream, raw_op_id(self.op.op_id))


#: The stream of event-stream records that no conversation shows: routing samples, and tombstones.
NO_STREAM = b""


def stream_of(op: Op) -> bytes:
    if op.surface != conversation.SURFACE.name or conversation.is_tombstone(op.payload):
        return NO_STREAM
    return stream_key(conversation.conversation_id(op.payload))


class _Seq(msgspec.Struct):
    seq: int


_SPLIT = msgspec.json.Decoder(list[msgspec.Raw])
_SEQ = msgspec.json.Decoder(_Seq)


def in_seq_order(body: bytes) -> list[Sent]:
    """The elements of the array by ascending seq, equal ones as they came (car-sync.md §11.2).

    An element whose seq cannot be read keeps its place after the ones before it. Raises BodyUnreadable.
    """
    texts = split(body)
    highest, order = -1, []
    for index, text in enumerate(texts):
        try:
            seq = _SEQ.decode(text).seq
        except msgspec.DecodeError:
            seq = highest
        highest = max(highest, seq)
        order.append((seq, index))
    order.sort()
    return [Sent(index, texts[index]) for _, index in order]


def split(body: bytes) -> list[bytes]:
    """The texts of the elements of a JSON array. Raises BodyUnreadable."""
    try:
        return [bytes(raw) for raw in _SPLIT.decode(body)]
    except msgspec.DecodeError:
        return list(_split_slowly(body))


def _split_slowly(body: bytes) -> Iterator[bytes]:
    """Split an array of which an element is not JSON: that element, with all after it, comes last."""
    text = body.decode(errors="surrogateescape").strip(" \t\r\n")
    if not text.startswith("["):
        raise BodyUnreadable("the body must be a JSON array of ops")
    decoder, at = json.JSONDecoder(), _skip(text, 1)
    while text[at : at + 1] != "]":
        try:
            _, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = len(text)
        yield text[at:end].encode(errors="surrogateescape")
        at = _skip(text, end)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != "]":
            break


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def read_arrivals(sent: Sequence[Sent], max_op_bytes: int) -> tuple[list[Arrival], Refusal | None]:
    """Read elements until one cannot be: the ops before it, and why it cannot."""
    arrivals: list[Arrival] = []
    for place, text in sent:
        if len(text) > max_op_bytes:
            detail = f"op {place} has {len(text)} bytes; an op may have {max_op_bytes}"
            return arrivals, Refusal("too_large", detail, {"index": place, "max_op_bytes": max_op_bytes})
        try:
            op, body, payload_at = read_admissible(text)
        except Unreadable as error:
            facts: dict[str, Json] = {"index": place, "path": error.path}
            return arrivals, Refusal("unreadable_op", f"op {place} cannot be read: {error}", facts)
        arrivals.append(Arrival(place, op, op.computed_id(), body, payload_at))
    return arrivals, None
