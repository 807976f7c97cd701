"""Reading ops from their texts (car-sync.md §1, §4)."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import msgspec
import orjson

from foldpoint.canonical import MAX_TEXT_DEPTH, Json, Repeats, Unreadable, canonical, is_deeper, read_json
from foldpoint.hlc import U32_MAX, Hlc
from foldpoint.op import STAMP, Op, op_from_json, read_scope, scope_json
from foldpoint.surfaces import PLAIN_TAGS, read_surface, surface_json


def read_op(text: bytes) -> Op:
    """Read one OpRecord text strictly. Raises Unreadable with the path.

    The positional array form of a record (§1.10), which nobody emits, is not read.
    """
    return read_op_text(text).op


class OpText(msgspec.Struct, frozen=True, gc=False):
    """An op, its `text()`, and where in that the payload begins."""

    op: Op
    text: bytes
    payload_at: int


def read_op_text(text: bytes) -> OpText:
    """As `read_op`, with the record's text."""
    emitted = read_emitted([text])
    if emitted is not None:
        return emitted[0]
    op = op_from_json(read_json(text))
    _refuse_repeated(text)
    head = op.head()
    return OpText(op, head + op.payload_text + b"}", len(head))


#: As far as msgspec can bound a number.
_Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _Stamp(msgspec.Struct, gc=False):
    wall_ms: _Natural
    counter: Annotated[int, msgspec.Meta(ge=0, le=U32_MAX)]
    device_id: str


class _Record(msgspec.Struct, gc=False):
    op_id: str
    hlc: _Stamp
    device_id: str
    seq: _Natural
    prev: str | None
    scope: Any
    surface: Any
    payload: msgspec.Raw

    def read(self, text: bytes, payload: Json) -> OpText:
        """The op, if `text` is this record's and the canonical text of `payload` is in it."""
        stamp, scope, surface = self.hlc, self.scope, self.surface
        if scope != "personal":
            scope = _read_as_written(scope, read_scope, scope_json)
        if surface.__class__ is not str or surface not in PLAIN_TAGS:
            surface = _read_as_written(surface, read_surface, surface_json)
        payload_at = len(text) - len(self.payload) - 1
        hlc = Hlc(stamp.wall_ms, stamp.counter, stamp.device_id)
        return OpText(
            Op(self.op_id, hlc, self.device_id, self.seq, self.prev, scope, surface, payload, text[payload_at:-1]),
            text,
            payload_at,
        )


def _read_as_written(value: Json, read: Callable[[Json], str], write: Callable[[str], Json]) -> str:
    """The tag of a form that is the only one of its tag. Raises Unreadable."""
    tag = read(value)
    if write(tag) != value:
        raise Unreadable("a form that nobody emits")
    return tag


_RECORDS = msgspec.json.Decoder(list[_Record])
_ENCODER = msgspec.json.Encoder()


def read_emitted(texts: Sequence[bytes | msgspec.Raw], depth: int = MAX_TEXT_DEPTH - 1) -> list[OpText] | None:
    """Read texts that are, byte for byte, what the crate emits; None if one is not, or its payload is deeper.

    Devices send what the crate emits, so texts are first read as that, many at once: a few calls on all of them cost
    a fraction of the same calls on each. What was decoded is written again, records by msgspec, which takes payloads
    over as they are, and payloads as canonical text. If both give the bytes that were sent, the texts say nothing
    else and repeat no field, and nothing is left to check but how deep they are. Numbers above 2^63-1 take the
    slow way.
    """
    try:
        records = _RECORDS.decode(_array(texts))
        payloads = _array([record.payload for record in records])
        values = orjson.loads(payloads)
        written = [_ENCODER.encode(record) for record in records]
        if _array(written) != _array(texts) or list(map(len, written)) != list(map(len, texts)):
            return None
        read = [record.read(*parts) for record, *parts in zip(records, written, values, strict=True)]
    except (msgspec.MsgspecError, RecursionError, UnicodeError, orjson.JSONDecodeError, Unreadable):
        return None
    if any(is_deeper(one.op.payload_text, depth) for one in read) or canonical(values) != payloads:
        return None
    return read


def _array(texts: Sequence[bytes | msgspec.Raw]) -> bytes:
    return b"[%b]" % b",".join(texts)


_RECORD = frozenset(("op_id", "hlc", "device_id", "seq", "prev", "scope", "surface", "payload"))


def _refuse_repeated(text: bytes) -> None:
    """Raise Unreadable if the record, or a typed record in it, repeats one of its own fields (§1.7)."""
    record: Any = Repeats.read(text)
    own = [(record, _RECORD), (record["hlc"], STAMP)]
    for value, field in ((record["scope"], "org"), (record["surface"], "kind")):
        if isinstance(value, Repeats):
            own.append((value, frozenset(value)))
            own.extend((inner, frozenset((field,))) for inner in value.values() if isinstance(inner, Repeats))
    for value, fields in own:
        value.refuse(fields)
