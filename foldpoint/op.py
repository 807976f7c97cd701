"""OpRecord: identity, text and JSON form of one op (car-sync.md §4)."""

from functools import lru_cache
from hashlib import sha256
from typing import Any

import msgspec
import orjson

from foldpoint.canonical import U64_MAX, Json, Repeats, Unreadable, canonical, read_json
from foldpoint.hlc import U32_MAX, Hlc
from foldpoint.surfaces import read_surface, surface_json, surface_of

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
