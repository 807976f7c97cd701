"""Equality of JSON values (run-ledger.md §6)."""

from typing import Any


def same_json(one: Any, other: Any) -> bool:
    """Equality of JSON values in which 1, 1.0 and true differ, and 0.0 equals -0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same_json(value, other[name]) for name, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same_json, one, other))
    equal: bool = one == other
    return equal
