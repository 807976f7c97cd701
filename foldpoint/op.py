"""OpRecord: reading, identity and text of one op (car-sync.md §4)."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Annotated, Any

import msgspec
import orjson

from foldpoint.canonical import MAX_TEXT_DEPTH, U64_MAX, Json, Repeats, Unreadable, canonical, is_deeper, read_json
from foldpoint.hlc import U32_MAX, Hlc
from foldpoint.surfaces import PLAIN_TAGS, read_surface, surface_json, surface_of

_SHARED = "shared:"
#: Ops share few scopes and surfaces, but a device may name them anyhow: longer names are not kept.
_SHORT_PLACE = 256


class Op(msgspec.Struct, frozen=True, gc=False):
    """One op, as its device made it.

    `scope` and `surface` are tags (§3); `payload_text` is the canonical JSON of `payload`.
    Equal ops have equal texts: comparing payloads as Python values would confuse 1, 1.0 and true.
    """

    op_id: str
    hlc: Hlc
    device_id: str
    seq: int
    prev: str | None
    scope: str
    surface: str
    payload: Json
    payload_text: bytes

    def computed_id(self) -> str:
        """What `op_id` must be (§4.3)."""
        return op_id(self.device_id, self.seq, self.prev, self.hlc, self.scope, self.surface, self.payload_text)

    @property
    def fold_key(self) -> str:
        """The key this op competes for in the state (§4.6)."""
        if surface_of(self.surface).event_stream:
            return "op:" + self.op_id
        return stable_key(self.payload, self.payload_text)

    def head(self) -> bytes:
        """The text of the record up to its payload, in the crate's key order (§4.1)."""
        wall_ms, counter, hlc_device = self.hlc
        return b'{"op_id":%b,"hlc":{"wall_ms":%d,"counter":%d,"device_id":%b},"device_id":%b,"seq":%d,"prev":%b,' % (
            orjson.dumps(self.op_id),
            wall_ms,
            counter,
            orjson.dumps(hlc_device),
            orjson.dumps(self.device_id),
            self.seq,
            orjson.dumps(self.prev),
        ) + _place_text(self.scope, self.surface)

    def text(self) -> bytes:
        """The record as the crate emits it: payload keys sorted, no spaces."""
        return self.head() + self.payload_text + b"}"

    def to_json(self) -> dict[str, Json]:
        return {
            "op_id": self.op_id,
            "hlc": self.hlc.to_json(),
            "device_id": self.device_id,
            "seq": self.seq,
            "prev": self.prev,
            "scope": scope_json(self.scope),
            "surface": surface_json(self.surface),
            "payload": self.payload,
        }


def _place_text(scope: str, surface: str) -> bytes:
    if len(scope) + len(surface) <= _SHORT_PLACE:
        return _short_place_text(scope, surface)
    return _written_place(scope, surface)


def _written_place(scope: str, surface: str) -> bytes:
    return b'"scope":%b,"surface":%b,"payload":' % (
        orjson.dumps(scope_json(scope)),
        orjson.dumps(surface_json(surface)),
    )


_short_place_text = lru_cache(4096)(_written_place)


def op_id(device_id: str, seq: int, prev: str | None, hlc: Hlc, scope: str, surface: str, payload_text: bytes) -> str:
    """The content address of an op (§4.3)."""
    fields = f"{device_id}\x1f{seq}\x1f{prev or ''}\x1f{hlc[0]}\x1f{hlc[1]}\x1f{hlc[2]}\x1f{scope}\x1f{surface}\x1f"
    return "op-" + sha256(fields.encode() + payload_text).hexdigest()[:32]


def make_op(device_id: str, seq: int, prev: str | None, hlc: Hlc, scope: str, surface: str, payload: Json) -> Op:
    """An op of this content, with its id."""
    text = canonical(payload)
    identity = op_id(device_id, seq, prev, hlc, scope, surface, text)
    return Op(identity, hlc, device_id, seq, prev, scope, surface, payload, text)


def stable_key(payload: Json, payload_text: bytes) -> str:
    """The logical entity of a payload: its string `id`, or else its content (§4.6)."""
    if isinstance(payload, dict) and isinstance(name := payload.get("id"), str):
        return "id:" + name
    return "h:" + sha256(payload_text).hexdigest()[:32]


def scope_json(tag: str) -> Json:
    return {"shared": {"org": tag[len(_SHARED) :]}} if tag.startswith(_SHARED) else tag


def read_scope(value: Json) -> str:
    """The tag of a scope's JSON form. Raises Unreadable (§1.11, §3.1)."""
    if value == "personal":
        return "personal"
    if isinstance(value, dict) and len(value) == 1:
        ((name, inner),) = value.items()
        if name == "personal" and inner is None:
            return "personal"
        if name == "shared" and isinstance(inner, dict) and isinstance(org := inner.get("org"), str):
            return _SHARED + org
    raise Unreadable("neither personal nor shared with an org", "scope")


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


def op_from_json(value: Json) -> Op:
    """Read an OpRecord out of strictly read JSON. Raises Unreadable with the path."""
    if not isinstance(value, dict):
        raise Unreadable("expected an op record")
    if "payload" not in value:
        raise Unreadable("missing", "payload")
    payload = value["payload"]
    return Op(
        _string(value, "op_id"),
        read_hlc(value.get("hlc")),
        _string(value, "device_id"),
        integer(value, "seq", U64_MAX),
        _string(value, "prev") if value.get("prev") is not None else None,
        read_scope(value.get("scope")),
        read_surface(value.get("surface")),
        payload,
        canonical(payload),
    )


#: The fields of a stamp.
STAMP = frozenset(("wall_ms", "counter", "device_id"))


def read_stamp(text: bytes) -> Hlc:
    """Read one stamp's text strictly. Raises Unreadable."""
    hlc = read_hlc(read_json(text), "")
    stamp: Any = Repeats.read(text)
    stamp.refuse(STAMP)
    return hlc


def read_hlc(value: Json, path: str = "hlc.") -> Hlc:
    """Read a stamp; `path` is put before the names of its fields. Raises Unreadable (§1.8, §2.1)."""
    if not isinstance(value, dict):
        raise Unreadable("expected a stamp", path.rstrip("."))
    return Hlc(
        integer(value, "wall_ms", U64_MAX, path),
        integer(value, "counter", U32_MAX, path),
        _string(value, "device_id", path),
    )


def integer(record: dict[str, Any], name: str, limit: int, path: str = "") -> int:
    """A field that must be a JSON integer in 0…limit. Raises Unreadable (§1.8)."""
    value = record.get(name)
    if type(value) is int and 0 <= value <= limit:
        return value
    raise Unreadable(f"expected an integer in 0…{limit}" if name in record else "missing", path + name)


def _string(record: dict[str, Any], name: str, path: str = "") -> str:
    value = record.get(name)
    if isinstance(value, str):
        return value
    raise Unreadable("expected a string" if name in record else "missing", path + name)


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
