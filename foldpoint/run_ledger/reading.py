"""Strict readers of typed JSON (run-ledger.md §3).

A reader takes a JSON value and gives it back as the crate would write it; Undecodable says what is wrong, and where.
Positional arrays and one-key objects for plain enums, which the crate's decoder takes and nobody writes, are refused.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from foldpoint.canonical import U64_MAX, Json, Repeats, Unreadable, read_json
from foldpoint.hlc import U32_MAX

Reader = Callable[[Json], Any]

ErrorClass = Literal[
    "syntax",
    "invalid_type",
    "invalid_value",
    "empty_identifier",
    "unknown_variant",
    "missing_field",
    "unknown_field",
    "duplicate_field",
    "foreign_run",
    "too_deep",
]

#: Unicode White_Space; Python's own idea of it is larger.
_WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
#: Where a record holds any JSON, in which a repeated key is no error.
_FREE = frozenset(("input", "data"))


class Undecodable(Unreadable):
    """Not of the wire form. `error_class` is the vectors' word for why, `path` names the place.

    `foreign_run` and `too_deep` are ours: a record of another run, and one that no op can carry.
    """

    def __init__(self, error_class: ErrorClass, detail: str, path: str = "") -> None:
        super().__init__(detail, path)
        self.error_class: ErrorClass = error_class

    def within(self, place: str) -> "Undecodable":
        return Undecodable(self.error_class, self.detail, f"{place}.{self.path}" if self.path else place)


def read_text(reader: Callable[[Json], Any], text: bytes) -> Any:
    """What `reader` makes of one JSON text, in which no typed object repeats a key. Raises Undecodable."""
    try:
        value = read_json(text)
    except Unreadable as error:
        raise Undecodable("syntax", error.detail) from error
    result = reader(value)
    for typed in _typed_objects(Repeats.read(text)):
        for name in sorted(typed.repeated):
            raise Undecodable("duplicate_field", "given twice", name)
    return result


def _typed_objects(value: Json) -> Iterator[Repeats]:
    """The objects of a well-formed record that are not part of its free JSON."""
    if isinstance(value, Repeats):
        yield value
        for name, inner in value.items():
            if name not in _FREE:
                yield from _typed_objects(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _typed_objects(inner)


def is_blank(text: str) -> bool:
    return not text.strip(_WHITE_SPACE)


def string(value: Json) -> str:
    if isinstance(value, str):
        return value
    raise Undecodable("invalid_type", "expected a string")


def identifier(value: Json) -> str:
    if is_blank(name := string(value)):
        raise Undecodable("empty_identifier", "an id may not be blank")
    return name


def _integer(limit: int) -> Reader:
    def read(value: Json) -> int:
        if type(value) is not int:
            raise Undecodable("invalid_type", "expected an integer")
        if not 0 <= value <= limit:
            raise Undecodable("invalid_value", f"expected an integer in 0…{limit}")
        return value

    return read


u32, u64 = _integer(U32_MAX), _integer(U64_MAX)


def free(value: Json) -> Json:
    return value


def nullable(reader: Reader) -> Reader:
    return lambda value: None if value is None else reader(value)


def one_of(*names: str) -> Reader:
    def read(value: Json) -> str:
        if (name := string(value)) not in names:
            raise Undecodable("unknown_variant", f"expected one of {', '.join(names)}")
        return name

    return read


def list_of(reader: Reader) -> Reader:
    def read(value: Json) -> list[Any]:
        if not isinstance(value, list):
            raise Undecodable("invalid_type", "expected an array")
        items = []
        for index, item in enumerate(value):
            try:
                items.append(reader(item))
            except Undecodable as error:
                raise error.within(str(index)) from None
        return items

    return read


def object_of(fields: Mapping[str, Reader], optional: frozenset[str] = frozenset()) -> Reader:
    """An object of exactly these keys; optional ones may be missing, and then stay so."""

    def read(value: Json) -> dict[str, Any]:
        given = _object(value)
        for name in given.keys() - fields.keys():
            raise Undecodable("unknown_field", "unknown", name)
        result = {}
        for name, reader in fields.items():
            if name in given:
                try:
                    result[name] = reader(given[name])
                except Undecodable as error:
                    raise error.within(name) from None
            elif name not in optional:
                raise Undecodable("missing_field", "missing", name)
        return result

    return read


def _object(value: Json) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise Undecodable("invalid_type", "expected an object")


def tagged(tag: str, variants: Mapping[str, Reader]) -> Reader:
    """An object whose key `tag` names the reader of its other keys."""
    read_tag = object_of({tag: one_of(*variants)})

    def read(value: Json) -> dict[str, Any]:
        given = _object(value)
        name = read_tag({tag: given[tag]} if tag in given else {})[tag]
        return {tag: name, **variants[name]({key: inner for key, inner in given.items() if key != tag})}

    return read
