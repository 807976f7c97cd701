"""A `.journal.jsonl` file: reading whatever is in it, and writing its lines (journal.md §1.1–1.2, §2)."""

from functools import lru_cache
from typing import NamedTuple

import orjson

from foldpoint.canonical import Repeats, Unreadable, read_json, repeats_keys
from foldpoint.journal.ops import KINDS, VERSION, JournalOp, read_journal_op
from foldpoint.journal.shapes import Field, Shape, read_shape, refuse_repeated, text, u8

_LINE: Shape = (Field("supercode_journal", u8), Field("ts", text), Field("op", text))

#: Unicode White_Space; `str.isspace` would also count U+001C to U+001F (§2.3).
_WHITE_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f"
    "\u205f\u3000"
)


class Line(NamedTuple):
    """A line that is not blank, without its ending; `number` counts all lines, from 1.

    `op` is None if the line was not understood, and `detail` says why.
    """

    number: int
    text: str
    op: JournalOp | None
    detail: str = ""


class Unread(NamedTuple):
    """A line as it is in the file."""

    number: int
    text: str

    def read(self) -> Line:
        try:
            return Line(*self, read_line(self.text))
        except Unreadable as unreadable:
            return Line(*self, None, str(unreadable))


def read_lines(data: bytes) -> list[Line]:
    """The lines of a whole file. Raises Unreadable if it is not UTF-8 throughout (§2.1)."""
    return [line.read() for line in split_lines(data)]


def split_lines(data: bytes) -> list[Unread]:
    """The lines of a whole file that are not blank, still to be read. Raises Unreadable as `read_lines` does."""
    try:
        pieces = data.decode().split("\n")
    except UnicodeDecodeError as error:
        raise Unreadable(f"not UTF-8 at byte {error.start}") from error
    lines = (Unread(number, piece.removesuffix("\r")) for number, piece in enumerate(pieces, 1))
    return [line for line in lines if line.text.strip(_WHITE_SPACE)]


def read_line(line: str) -> JournalOp:
    """The op of one line. Raises Unreadable (§2.4)."""
    encoded = line.encode()
    value = read_json(encoded)
    read_shape(_LINE, value)
    op = read_journal_op(value)
    if repeats_keys(encoded, value):
        refuse_repeated(_LINE + KINDS[op["op"]], Repeats.read(encoded))
    return op


def write_line(op: JournalOp, ts: str) -> bytes:
    """The line that the crate's writer appends, with its LF."""
    return orjson.dumps({"supercode_journal": VERSION, "ts": ts, **op}) + b"\n"


def timestamp(wall_ms: int) -> str:
    """RFC 3339 in UTC with milliseconds; years of more than four digits carry a sign."""
    seconds, ms = divmod(wall_ms, 1_000)
    days, second = divmod(seconds, 86_400)
    return f"{_date(days)}T{second // 3_600:02}:{second // 60 % 60:02}:{second % 60:02}.{ms:03}Z"


@lru_cache(64)
def _date(days: int) -> str:
    """The date so many days after 1970-01-01."""
    cycles, days = divmod(days, 146_097)
    year = 1970 + 400 * cycles
    while days >= sum(lengths := _months(year)):
        days -= sum(lengths)
        year += 1
    month = 1
    for length in lengths:
        if days < length:
            break
        days -= length
        month += 1
    return f"{year:04}-{month:02}-{days + 1:02}" if year < 10_000 else f"+{year}-{month:02}-{days + 1:02}"


def _months(year: int) -> tuple[int, ...]:
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return (31, 29 if leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
