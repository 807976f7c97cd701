"""Reading records as strictly as the crate does, from tables of their fields (journal.md §1, §2.4)."""

from collections.abc import Callable
from typing import Any, NamedTuple

from foldpoint.canonical import I64_MIN, U64_MAX, Json, Repeats, Unreadable
from foldpoint.hlc import U32_MAX

Read = Callable[[Json, str], Any]
_REQUIRED: Any = object()


class Field(NamedTuple):
    """One field: `read` raises Unreadable at the path it is given.

    Null is the same as absent if the default is None, else an error. With `omit`, the default is not written.
    `inner` is the shape of the object, or of each of the objects, in the field.
    """

    name: str
    read: Read
    default: Any = _REQUIRED
    omit: bool = False
    inner: "Shape" = ()


Shape = tuple[Field, ...]


def read_shape(shape: Shape, value: Json, path: str = "") -> dict[str, Any]:
    """The known fields in the writer's order, defaults filled in; `path` ends in a dot. Raises Unreadable."""
    if not isinstance(value, dict):
        raise Unreadable("expected an object", path.rstrip("."))
    record = {}
    for name, read, default, omit, _ in shape:
        given = value.get(name)
        if name in value and (given is not None or default is not None):
            record[name] = read(given, path + name)
        elif default is _REQUIRED:
            raise Unreadable("missing", path + name)
        else:
            record[name] = default
        if omit and record[name] == default:
            del record[name]
    return record


def refuse_repeated(shape: Shape, value: Any, path: str = "") -> None:
    """Raise Unreadable if a record that `read_shape` accepts gives one of its fields twice (§2.4)."""
    if not isinstance(value, Repeats):
        return
    value.refuse([field.name for field in shape], path)
    for field in shape:
        inner = value.get(field.name) if field.inner else None
        if isinstance(inner, list):
            for index, item in enumerate(inner):
                refuse_repeated(field.inner, item, f"{path}{field.name}[{index}].")
        elif inner is not None:
            refuse_repeated(field.inner, inner, f"{path}{field.name}.")


def within(low: int, high: int) -> Read:
    """A plain integer token in low…high."""

    def read(value: Json, path: str) -> int:
        if type(value) is int and low <= value <= high:
            return value
        raise Unreadable(f"expected an integer in {low}…{high}", path)

    return read


u8, u32, u64 = within(0, 255), within(0, U32_MAX), within(0, U64_MAX)
i64 = within(I64_MIN, 2**63 - 1)


def text(value: Json, path: str) -> str:
    if isinstance(value, str):
        return value
    raise Unreadable("expected a string", path)


def boolean(value: Json, path: str) -> bool:
    if isinstance(value, bool):
        return value
    raise Unreadable("expected true or false", path)


def double(value: Json, path: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise Unreadable("expected a number", path)


def one_of(*names: str) -> Read:
    def read(value: Json, path: str) -> str:
        if isinstance(value, str) and value in names:
            return value
        raise Unreadable("expected one of " + ", ".join(names), path)

    return read


def anything(value: Json, _path: str) -> Json:
    return value


def items(read_item: Read) -> Read:
    def read(value: Json, path: str) -> list[Any]:
        if not isinstance(value, list):
            raise Unreadable("expected a list", path)
        return [read_item(item, f"{path}[{index}]") for index, item in enumerate(value)]

    return read


def texts_by_name(value: Json, path: str) -> dict[str, str]:
    """An object of strings, sorted by key."""
    if not isinstance(value, dict):
        raise Unreadable("expected an object", path)
    return {name: text(value[name], f"{path}.{name}") for name in sorted(value)}


def record(name: str, shape: Shape) -> Field:
    """A required field that holds an object of this shape."""
    return Field(name, _reader(shape), inner=shape)


def records(name: str, shape: Shape, default: Any = _REQUIRED, *, omit: bool = False) -> Field:
    """A field that holds a list of objects of this shape."""
    return Field(name, items(_reader(shape)), default, omit, shape)


def _reader(shape: Shape) -> Read:
    return lambda value, path: read_shape(shape, value, path + ".")
