"""What a transaction writes at its end: one statement, and so one round trip, however many tables it is for."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from app.sql.transactions import Driver

_PLACE = re.compile(r"\$(\d+)")


class Writes:
    """Rows by the statement that writes them, which takes one array per column.

    All statements run on one snapshot and in no order: none may depend on another, or write a row that another does.
    """

    def __init__(self) -> None:
        self._rows: dict[str, list[Sequence[Any]]] = {}

    def add(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        if added := list(rows):
            self._rows.setdefault(statement, []).extend(added)

    async def send(self, pg: Driver) -> None:
        if self._rows:
            columns = [list(zip(*rows, strict=True)) for rows in self._rows.values()]
            widths = tuple(len(each) for each in columns)
            await pg.execute(_joined(tuple(self._rows), widths), *(column for each in columns for column in each))
            self._rows = {}


@lru_cache(256)
def _joined(statements: tuple[str, ...], widths: tuple[int, ...]) -> str:
    """The statements as one, their parameters numbered on; `widths` says how many each has."""
    parts, before = [], 0
    for i, (statement, width) in enumerate(zip(statements, widths, strict=True)):
        parts.append(f"w{i} as ({_numbered_on(statement, before)})")
        before += width
    return f"with {', '.join(parts)} select"


def _numbered_on(statement: str, before: int) -> str:
    return _PLACE.sub(lambda place: f"${int(place[1]) + before}", statement)
