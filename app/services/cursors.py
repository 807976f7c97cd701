"""Cursors of `/ops`: a frontier, the scope and the server epoch, opaque to the client (server.md §4, §10)."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from app.problems import Problem


class Cursor(NamedTuple):
    """How far a reader is: the highest seq it has of each device number."""

    epoch: str
    scope: int
    reached: dict[int, int]

    def text(self) -> str:
        reached = {str(device): seq for device, seq in sorted(self.reached.items())}
        return encode([self.epoch, self.scope, reached])


class CursorGone(Problem):
    """A cursor that cannot be gone on with; `reached` is what a new one may keep of it."""

    def __init__(self, code: str, detail: str, reached: Mapping[int, int] | None = None) -> None:
        super().__init__(code, detail)
        self.reached = dict(reached or {})


def read_cursor(text: str | None, epoch: str, scope: int) -> Cursor:
    """The start, or what a cursor of this server and scope says.

    Raises invalid_cursor for garbage, and CursorGone: server_restored for another epoch, cursor_gone for another scope.
    """
    if text is None:
        return Cursor(epoch, scope, {})
    match decode(text):
        case [str(of_epoch), int(of_scope), dict(reached)]:
            cursor = Cursor(of_epoch, of_scope, _numbers(reached))
        case _:
            raise _invalid()
    if cursor.epoch != epoch:
        raise CursorGone("server_restored", "the cursor is of another server epoch")
    if cursor.scope != scope:
        raise CursorGone("cursor_gone", "the cursor is not of this scope")
    return cursor


def _numbers(reached: Mapping[str, Any]) -> dict[int, int]:
    try:
        numbers = {int(device): seq for device, seq in reached.items()}
    except ValueError as error:
        raise _invalid() from error
    if not all(type(seq) is int and 0 <= seq < 2**63 and 0 < no < 2**31 for no, seq in numbers.items()):
        raise _invalid()
    return numbers


def encode(value: Any) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(value)).rstrip(b"=").decode()


def decode(text: str) -> Any:
    """The value in an opaque cursor. Raises invalid_cursor."""
    try:
        return orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError) as error:
        raise _invalid() from error


def _invalid() -> Problem:
    return Problem("invalid_cursor", "this is no cursor of this server")


def key_cursor(key: bytes) -> str:
    """A place in a list that is ordered by slot keys."""
    return encode({"key": key.hex()})


def read_key(text: str) -> bytes:
    """The slot key in a cursor. Raises invalid_cursor."""
    match decode(text):
        case {"key": str(key)}:
            try:
                return bytes.fromhex(key)
            except ValueError as error:
                raise _invalid() from error
    raise _invalid()
