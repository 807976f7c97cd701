"""JSON as the protocol reads and writes it (car-sync.md §1, §4.4)."""

import json
import math
import re
from collections import Counter
from collections.abc import Collection
from typing import Any

import orjson

#: A JSON value: integers stay exact within u64/i64, `1` and `1.0` are different values.
Json = None | bool | int | float | str | list[Any] | dict[str, Any]

U64_MAX = 2**64 - 1
I64_MIN = -(2**63)
#: Nested containers a whole text may hold (§1.7).
MAX_TEXT_DEPTH = 127

_INTEGER_MINUS_ZERO = re.compile(rb"-0(?![0-9.eE])")
#: To the end of the text if it is not closed, so that scanning for strings takes linear time.
_STRING = re.compile(rb'"(?>[^"\\]+|\\.)*+(?:"|\\?\Z)', re.DOTALL)


class Unreadable(ValueError):
    """The text is not JSON as the protocol reads it, or not the record it should be.

    `path` names the place, such as `hlc.wall_ms`; it is empty for the text as a whole.
    """

    def __init__(self, detail: str, path: str = "") -> None:
        super().__init__(f"{path}: {detail}" if path else detail)
        self.detail = detail
        self.path = path


def read_json(text: bytes) -> Json:
    """Read one JSON text strictly; the last of duplicate keys stays (§1.1–1.7)."""
    if is_deeper(text, MAX_TEXT_DEPTH):
        raise Unreadable(f"more than {MAX_TEXT_DEPTH} nested containers")
    try:
        value: Json = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Unreadable(str(error)) from error
    if b"-0" in text and _INTEGER_MINUS_ZERO.search(text):
        return _read_minus_zero(text)
    return value


def _read_minus_zero(text: bytes) -> Json:
    value: Json = json.loads(text, parse_int=_integer)
    return value


def _integer(digits: str) -> int | float:
    if digits == "-0" or len(digits) > 20:
        return float(digits)
    number = int(digits)
    return number if I64_MIN <= number <= U64_MAX else float(digits)


def canonical(value: Json) -> bytes:
    """The one text of a value: sorted keys, no spaces, shortest floats (§4.4)."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def is_deeper(text: bytes, limit: int) -> bool:
    """Whether valid JSON `text` nests more than `limit` containers."""
    if text.count(b"[") + text.count(b"{") <= limit:
        return False
    depth = 0
    for byte in _STRING.sub(b"", text):
        if byte in b"[{":
            depth += 1
            if depth > limit:
                return True
        elif byte in b"]}":
            depth -= 1
    return False


def repeats_keys(text: bytes, value: Json) -> bool:
    """Whether an object of the JSON `text`, which reads as `value`, has a key more than once."""
    return _members(text) != _members(orjson.dumps(value))


def _members(text: bytes) -> int:
    return _STRING.sub(b"", text).count(b":")


class Repeats(dict[str, Json]):
    """An object read from its pairs, which knows the keys it was given more than once."""

    __slots__ = ("repeated",)

    def __init__(self, pairs: list[tuple[str, Json]]) -> None:
        super().__init__(pairs)
        times = Counter(name for name, _ in pairs) if len(self) < len(pairs) else {}
        self.repeated = {name for name, n in times.items() if n > 1}

    def refuse(self, fields: Collection[str], path: str = "") -> None:
        """Raises Unreadable if one of these fields of a typed record comes more than once (§1.7)."""
        for name in sorted(self.repeated.intersection(fields)):
            raise Unreadable("duplicate field", path + name)

    @staticmethod
    def read(text: bytes) -> Json:
        """Valid JSON `text` with every object as Repeats; numbers stay as they are written."""
        value: Json = json.loads(text, parse_int=str, parse_float=str, object_pairs_hook=Repeats)
        return value


def as_u64(value: Json) -> int | None:
    """An integer in u64, or None for everything else, floats and booleans too."""
    if type(value) is int and 0 <= value <= U64_MAX:
        return value
    return None


def clamp_u64(value: Json) -> int | None:
    """A number as u64: a double is truncated toward zero and clamped; None if it is no number (§7.1)."""
    if type(value) is int:
        return max(value, 0)
    if type(value) is float:
        return 0 if math.isnan(value) or value <= 0 else min(int(value), U64_MAX)
    return None
