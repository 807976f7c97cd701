"""Canonical bytes and digests of the checkpoint layer, and floats that survive it (stored-message.md §5).

They differ from the protocol's canonical JSON in numbers: an integral float is written as the integer it equals, and an
integer beyond ±(2^53−1) has no canonical form.
"""

from hashlib import sha256
from math import inf, nextafter

from foldpoint.canonical import Json, canonical
from foldpoint.stored_message.refusals import Incompatible

_SAFE_INTEGER = 2**53 - 1
_MAX_DEPTH = 128


def canonical_bytes(value: Json) -> bytes:
    """Raises Incompatible for a value that has none."""
    return canonical(_canonical_value(value, 1))


def digest(value: Json) -> str:
    return "sha256:" + sha256(canonical_bytes(value)).hexdigest()


def _canonical_value(value: Json, depth: int) -> Json:
    if depth > _MAX_DEPTH:
        raise Incompatible(f"nested deeper than {_MAX_DEPTH}")
    if isinstance(value, dict):
        return {name: _canonical_value(inner, depth + 1) for name, inner in value.items()}
    if isinstance(value, list):
        return [_canonical_value(inner, depth + 1) for inner in value]
    if isinstance(value, float) and value.is_integer() and abs(value) <= _SAFE_INTEGER:
        return int(value)
    if type(value) is int and abs(value) > _SAFE_INTEGER:
        raise Incompatible(f"{value} is beyond 2^53-1")
    return value


def settled(value: Json) -> Json:
    """The value with each float moved to the nearest one that the original kernel reads back from its own text.

    A kernel built without exact float reading misreads some doubles of 16 or 17 digits by a unit in the last place, and
    would find its own checkpoint corrupted.
    """
    if isinstance(value, dict):
        return {name: settled(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [settled(inner) for inner in value]
    return _settled_float(value) if isinstance(value, float) else value


def _settled_float(number: float) -> float:
    above = below = number
    while True:
        for near in (above, below):
            if _read_inexactly(canonical(near).decode()) == near:
                return near
        above, below = nextafter(above, inf), nextafter(below, -inf)


def _read_inexactly(text: str) -> float:
    """A decimal as the digits times or over a power of ten, each rounded: what a fast reader makes of it."""
    mantissa, _, exponent = text.partition("e")
    whole, _, fraction = mantissa.partition(".")
    power = int(exponent or 0) - len(fraction)
    number = float(int(whole + fraction))
    while power < -308:
        number, power = number / 1e308, power + 308
    scale = float(f"1e{abs(power)}")
    return number * scale if power >= 0 else number / scale
