"""Cursors: the server epoch, the scope and a place in what is read, opaque to the client (server.md §4, §10)."""

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import orjson

from app.problems import Problem

P = TypeVar("P")


class CursorGone(Problem):
    """A cursor that cannot be gone on with: begin again, unless the facts name where."""

    def __init__(self, code: str, detail: str, reached: Mapping[int, int] | None = None) -> None:
        super().__init__(code, detail, {"checkpoint": None, "cursor": None})
        #: What a new cursor of `/ops` may keep of this one.
        self.reached = dict(reached or {})


class Cursors(NamedTuple):
    """Makes and reads the cursors of one scope, in the server epoch that the transaction saw."""

    epoch: str
    scope: int

    def text(self, place: Any) -> str:
        """The cursor at a place, which is any JSON."""
        return encode([self.epoch, self.scope, place])

    def read(self, text: str | None, place: Callable[[Any], P]) -> P | None:
        """The place in a cursor, as `place` reads it out of its JSON; None without a cursor, at the start.

        Raises invalid_cursor for garbage, and CursorGone: server_restored for another epoch, cursor_gone for another
        scope.
        """
        if text is None:
            return None
        match decode(text):
            case [str(epoch), int(scope), value]:
                found = place(value)
            case _:
                raise invalid_cursor()
        if epoch != self.epoch:
            raise CursorGone("server_restored", "the cursor is of another server epoch")
        if scope != self.scope:
            raise CursorGone("cursor_gone", "the cursor is not of this scope")
        return found


def invalid_cursor() -> Problem:
    return Problem("invalid_cursor", "this is no cursor of this server")


def reached(place: Any) -> dict[int, int]:
    """The place of a reader of `/ops`: the highest seq it has of each device number. Raises invalid_cursor."""
    if not isinstance(place, dict):
        raise invalid_cursor()
    try:
        numbers = {int(device): seq for device, seq in place.items()}
    except ValueError as error:
        raise invalid_cursor() from error
    if not all(type(seq) is int and 0 <= seq < 2**63 and 0 < no < 2**31 for no, seq in numbers.items()):
        raise invalid_cursor()
    return numbers


def reached_json(reached: Mapping[int, int]) -> dict[str, int]:
    return {str(device): seq for device, seq in sorted(reached.items())}


def key(place: Any) -> bytes:
    """A place in a list that is ordered by slot keys, or named by one. Raises invalid_cursor."""
    if not isinstance(place, str):
        raise invalid_cursor()
    try:
        return bytes.fromhex(place)
    except ValueError as error:
        raise invalid_cursor() from error


def encode(value: Any) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(value)).rstrip(b"=").decode()


def decode(text: str) -> Any:
    """The value in an opaque cursor. Raises invalid_cursor."""
    try:
        return orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError) as error:
        raise invalid_cursor() from error
