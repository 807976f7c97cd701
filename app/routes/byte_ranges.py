"""Parts of a text that never changes, and the conditions on them (RFC 9110 §13.1, §14)."""

import re

from app.problems import Problem

_TAG = re.compile(r'"[^"]*"')
_SPAN = re.compile(r"([0-9]*)-([0-9]*)")
#: More digits than the length of any text has.
_DIGITS = 18


def is_held(if_none_match: str | None, etag: str) -> bool:
    """Whether the client holds the text already: it names this entity tag, weak or not, among others or by `*`."""
    return if_none_match is not None and (if_none_match.strip() == "*" or etag in _TAG.findall(if_none_match))


def span(range_: str | None, if_range: str | None, etag: str, size: int) -> tuple[int, int] | None:
    """The first byte and the one after the last that are asked for; None for the whole text.

    That is also the answer to several ranges, to a unit that is not bytes, and to a condition that does not name this
    text. Raises invalid_request, as 416, for a range that is none or that no byte is in.
    """
    unit, _, ranges = (range_ or "").partition("=")
    if unit.strip().lower() != "bytes" or "," in ranges or if_range not in (None, etag):
        return None
    found = _SPAN.fullmatch(ranges.strip())
    start, stop = (size, size) if found is None else _bounds(found[1], found[2], size)
    if start >= stop:
        detail = f"a range is bytes=FIRST-LAST, bytes=FIRST- or bytes=-LENGTH, and begins within {size} bytes"
        raise Problem("invalid_request", detail, {"size": size}, status=416)
    return start, stop


def _bounds(first: str, last: str, size: int) -> tuple[int, int]:
    if first:
        return _number(first), min(_number(last) + 1, size) if last else size
    return size - min(_number(last), size), size


def _number(digits: str) -> int:
    return int(digits.lstrip("0")[:_DIGITS] or "0")
