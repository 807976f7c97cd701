"""From a request's body to ops in seq order, read and hashed one by one (server.md §3)."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from operator import le
from typing import Annotated, Any, TypeVar

import msgspec

from app.sql.keys import raw_op_id, stream_key
from app.sql.ops import NewOp
from foldpoint.admission import I64_MAX, read_admissible, read_emitted_admissible
from foldpoint.canonical import Json, Unreadable
from foldpoint.envelope import is_envelope
from foldpoint.op import Op
from foldpoint.op_text import OpText
from foldpoint.relay import Refusal
from foldpoint.surfaces import conversation, surface_of

#: Ops that are read at once, and inserted while the next are read.
PART = 250
#: So many ops at most, and not many bytes, are few.
FEW = 16
#: Above so many bytes work leaves the event loop for a thread; reading ops and splitting a request are quick, and a
#: thread that wants the interpreter while the loop does too costs both of them more.
OFF_LOOP_BYTES, READ_BYTES, SPLIT_BYTES = 64 * 1024, 256 * 1024, 1024 * 1024
#: Ops are read while a scope's lock is held: splitting other requests may not keep them waiting.
READERS = ThreadPoolExecutor(2, "reading")

T = TypeVar("T")


class BodyUnreadable(ValueError):
    """The body is no JSON array at all, so nothing of it was taken."""


class Sent(msgspec.Struct, frozen=True, gc=False):
    """One element of a request: its place in the array, the op id it claims, and its text."""

    place: int
    op_id: str | None
    text: bytes | msgspec.Raw


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """An op that was read, with what storage needs of it."""

    place: int
    op: Op
    computed_id: str
    body: bytes
    payload_at: int

    @classmethod
    def of(cls, op: Op, place: int) -> "Arrival":
        """An op that was authored here."""
        head = op.head()
        return cls(place, op, op.op_id, head + op.payload_text + b"}", len(head))

    def row(self, scope: int, device: int) -> NewOp:
        """The row, for these numbers of scope and device, of an op whose id was verified."""
        op = self.op
        wall_ms, counter, _ = op.hlc
        surface = surface_of(op.surface).number
        return (
            scope, wall_ms, counter, op.seq, device, self.payload_at, surface, raw_op_id(op.op_id), stream_of(op),
            self.body,
        )  # fmt: skip


#: The stream of event-stream records that no conversation shows: routing samples, and tombstones.
NO_STREAM = b""


def stream_of(op: Op) -> bytes | None:
    """The stream of an op that is its own record; None for every other, a sealed one too."""
    if not surface_of(op.surface).event_stream or is_envelope(op.payload):
        return None
    return record_stream(op)


def record_stream(op: Op) -> bytes:
    """The stream of the record that an op of an event stream makes."""
    if op.surface != conversation.SURFACE.name or conversation.is_tombstone(op.payload):
        return NO_STREAM
    return stream_key(conversation.conversation_id(op.payload))


class _Claim(msgspec.Struct, gc=False):
    seq: Annotated[int, msgspec.Meta(ge=0, le=I64_MAX)]
    op_id: Any = None


_SPLIT = msgspec.json.Decoder(list[msgspec.Raw])
_CLAIM = msgspec.json.Decoder(_Claim)
_CLAIMS = msgspec.json.Decoder(list[_Claim])


def in_seq_order(body: bytes) -> list[Sent]:
    """The elements of the array by ascending seq, equal ones as they came (car-sync.md §11.2).

    An element whose seq cannot be read keeps its place after the ones before it. Raises BodyUnreadable.
    """
    texts = split(body)
    claims = _claims(body, texts)
    ids = (claim.op_id if isinstance(claim.op_id, str) else None for claim in claims)
    sent = list(map(Sent, range(len(texts)), ids, texts))
    seqs = [claim.seq for claim in claims]
    return sent if all(map(le, seqs, seqs[1:])) else sorted(sent, key=lambda one: seqs[one.place])


def _claims(body: bytes, texts: Sequence[bytes | msgspec.Raw]) -> Sequence[_Claim]:
    with suppress(msgspec.DecodeError, RecursionError):
        return _CLAIMS.decode(body)
    highest = -1
    claims = []
    for text in texts:
        try:
            claim = _CLAIM.decode(text)
        except (msgspec.DecodeError, RecursionError):
            claim = _Claim(highest)
        highest = max(highest, claim.seq)
        claims.append(claim)
    return claims


def split(body: bytes) -> Sequence[bytes | msgspec.Raw]:
    """The texts of the elements of a JSON array. Raises BodyUnreadable."""
    try:
        return _SPLIT.decode(body)
    except (msgspec.DecodeError, RecursionError):
        text = body.decode(errors="surrogateescape").strip(" \t\r\n")
        if not text.startswith("["):
            raise BodyUnreadable("the body must be a JSON array of ops") from None
        return [piece.encode(errors="surrogateescape") for piece in _split_slowly(text)]


def _split_slowly(text: str) -> Iterator[str]:
    """Split an array that is not JSON: from where it is not any more, all that follows is its last element."""
    decoder, at, ended = json.JSONDecoder(), 1, False
    while not ended:
        at = _skip(text, at)
        try:
            _, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        yield text[at:end]
        at = _skip(text, end)
        ended = at == len(text) - 1 and text.endswith("]")
        if not ended and text[at : at + 1] != ",":
            break
        at += 1
    if not ended:
        yield text[at:]


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


class Reading:
    """The ops of one chunk, read a part at a time: the database takes one part while the next is read.

    `refusal` says why reading ended early, once the parts before that are through.
    """

    def __init__(self, sent: Sequence[Sent], limits: Mapping[str, int]) -> None:
        self._sent, self._limits = sent, limits
        self._begun: list[Arrival] | None = None
        #: Whether these ops are soon dealt with.
        self.few = len(sent) <= FEW and sum(len(one.text) for one in sent) <= OFF_LOOP_BYTES
        self.refusal: Refusal | None = None

    def __len__(self) -> int:
        return len(self._sent)

    async def begin(self) -> None:
        """Read the first part, before anybody waits for it."""
        self._begun = await self._read(0)

    async def parts(self) -> AsyncIterator[list[Arrival]]:
        """The ops that can be read, some at a time."""
        for start in range(0, len(self._sent), PART):
            begun, self._begun = self._begun, None
            yield await self._read(start) if begun is None else begun
            if self.refusal is not None:
                return

    async def _read(self, start: int) -> list[Arrival]:
        part = self._sent[start : start + PART]
        size = sum(len(sent.text) for sent in part)
        arrivals, self.refusal = await off_loop(
            size, read_arrivals, part, self._limits, threads=READERS, above=READ_BYTES
        )
        return arrivals


def read_arrivals(part: Sequence[Sent], limits: Mapping[str, int]) -> tuple[list[Arrival], Refusal | None]:
    """Read elements until one cannot be: the ops before it, and why it cannot."""
    texts = [one.text for one in part]
    if (
        max(map(len, texts), default=0) <= limits["max_op_bytes"]
        and (emitted := read_emitted_admissible(texts)) is not None
    ):
        return list(map(_arrival, part, emitted)), None
    arrivals: list[Arrival] = []
    for one in part:
        if len(one.text) > limits["max_op_bytes"]:
            detail = f"op {one.place} has {len(one.text)} bytes; an op may have {limits['max_op_bytes']}"
            return arrivals, Refusal("too_large", detail, {"index": one.place, **limits})
        try:
            arrivals.append(_arrival(one, read_admissible(bytes(one.text))))
        except Unreadable as error:
            facts: dict[str, Json] = {"index": one.place, "path": error.path}
            return arrivals, Refusal("unreadable_op", f"op {one.place} cannot be read: {error}", facts)
    return arrivals, None


def _arrival(sent: Sent, read: OpText) -> Arrival:
    return Arrival(sent.place, read.op, read.op.computed_id(), read.text, read.payload_at)


async def off_loop(
    size: int, work: Callable[..., T], *args: Any, threads: Executor | None = None, above: int = OFF_LOOP_BYTES
) -> T:
    """Do work on so many bytes, in a thread if they are many."""
    if size > above:
        return await asyncio.get_running_loop().run_in_executor(threads, work, *args)
    return work(*args)
