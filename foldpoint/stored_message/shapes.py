"""Shapes of wire objects: a shape reads a JSON value strictly and gives its normal form (stored-message.md §2, §4).

The normal form has the keys in the order of the table, absent keys with their defaults, and without what is left out
when it is absent. Positional arrays and one-key objects in place of a name are refused (stored-message.md §3).
"""

import json
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, NamedTuple

from foldpoint.canonical import U64_MAX, Json, Repeats, Unreadable, read_json
from foldpoint.hlc import U32_MAX
from foldpoint.stored_message.refusals import Kind, Malformed

#: Reads a value at a path. Raises Malformed.
Shape = Callable[[Json, str], Any]


class Field(NamedTuple):
    """A key of an object. `left_out` says that its default is not written."""

    shape: Shape
    required: bool
    default: Json
    left_out: bool


def required(shape: Shape) -> Field:
    return Field(shape, True, None, False)


def defaulted(shape: Shape, default: Json) -> Field:
    return Field(shape, False, default, False)


def omittable(shape: Shape, default: Json = None) -> Field:
    return Field(shape, False, default, True)


def read_document(text: bytes) -> Json:
    """Strict JSON whose objects know the keys they were given more than once. Raises Malformed."""
    try:
        value = read_json(text)
    except Unreadable as error:
        raise Malformed(Kind.SYNTAX, error.detail) from error
    if not isinstance(value, dict | list):
        return value
    document: Json = json.loads(text, parse_int=_read_integer, object_pairs_hook=Repeats)
    return document


def _read_integer(digits: str) -> Json:
    return read_json(digits.encode())


def anything(value: Json, path: str) -> Any:  # noqa: ARG001
    return value


def string(value: Json, path: str) -> str:
    if isinstance(value, str):
        return value
    raise Malformed(Kind.INVALID_TYPE, "expected a string", path)


def boolean(value: Json, path: str) -> bool:
    if isinstance(value, bool):
        return value
    raise Malformed(Kind.INVALID_TYPE, "expected a boolean", path)


def integer(value: Json, path: str) -> int:
    if type(value) is int:
        return value
    raise Malformed(Kind.INVALID_TYPE, "expected an integer", path)


def u32(value: Json, path: str) -> int:
    return _bounded(integer(value, path), path, U32_MAX)


def u64(value: Json, path: str) -> int:
    return _bounded(integer(value, path), path, U64_MAX)


def _bounded(value: int, path: str, bound: int) -> int:
    if 0 <= value <= bound:
        return value
    raise Malformed(Kind.INVALID_VALUE, f"expected an integer from 0 to {bound}", path)


def decimal_u64(value: Json, path: str) -> str:
    """A u64 as its canonical decimal string (§5)."""
    text = string(value, path)
    if text.isascii() and text.isdecimal() and str(int(text[:21])) == text and int(text) <= U64_MAX:
        return text
    raise Malformed(Kind.INVALID_VALUE, "expected a u64 as a decimal string", path)


def one_of(*names: str) -> Shape:
    def read(value: Json, path: str) -> str:
        if not isinstance(value, str):
            raise Malformed(Kind.SYNTAX, f"expected one of {', '.join(names)}", path)
        if value not in names:
            raise Malformed(Kind.UNKNOWN_VARIANT, f"expected one of {', '.join(names)}", path)
        return value

    return read


def nullable(shape: Shape) -> Shape:
    return lambda value, path: None if value is None else shape(value, path)


def list_of(shape: Shape) -> Shape:
    def read(value: Json, path: str) -> list[Any]:
        if not isinstance(value, list):
            raise Malformed(Kind.INVALID_TYPE, "expected a list", path)
        return [shape(item, f"{path}[{index}]") for index, item in enumerate(value)]

    return read


def struct(fields: Mapping[str, Field]) -> Shape:
    """An object of these keys and no others."""
    return lambda value, path: _read_fields(_object(value, path), fields, path)


def tagged(tag: str, variants: Mapping[str, Mapping[str, Field]]) -> Shape:
    """An object whose tag decides its other keys."""
    tables = {name: {tag: required(string), **fields} for name, fields in variants.items()}

    def read(value: Json, path: str) -> dict[str, Any]:
        members = _object(value, path)
        if tag not in members:
            raise Malformed(Kind.MISSING_FIELD, "missing", _join(path, tag))
        name = string(members[tag], _join(path, tag))
        if name not in tables:
            raise Malformed(Kind.UNKNOWN_VARIANT, f"expected one of {', '.join(tables)}", _join(path, tag))
        return _read_fields(members, tables[name], path)

    return read


def _object(value: Json, path: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise Malformed(Kind.INVALID_LENGTH if value == [] else Kind.INVALID_TYPE, "expected an object", path)


def _read_fields(members: dict[str, Any], fields: Mapping[str, Field], path: str) -> dict[str, Any]:
    repeated = members.repeated if isinstance(members, Repeats) else ()
    found: dict[str, Any] = {}
    for name, value in members.items():
        if name not in fields:
            raise Malformed(Kind.UNKNOWN_FIELD, "unknown key", _join(path, name))
        if name in repeated:
            raise Malformed(Kind.DUPLICATE_FIELD, "given twice", _join(path, name))
        found[name] = fields[name].shape(value, _join(path, name))
    normal: dict[str, Any] = {}
    for name, field in fields.items():
        if name not in found and field.required:
            raise Malformed(Kind.MISSING_FIELD, "missing", _join(path, name))
        value = found[name] if name in found else copy(field.default)
        if not (field.left_out and value == field.default):
            normal[name] = value
    return normal


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
