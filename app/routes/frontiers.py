"""Frontiers in a query, as a JSON object of device to seq."""

from typing import Annotated

from fastapi import Depends, Query

from app.routes.asking import read_body, unreadable
from foldpoint.canonical import Unreadable
from foldpoint.frontier import read_frontier

Frontier = dict[str, int]
WHAT = 'A frontier: a JSON object of device to the highest seq, like {"laptop": 41}.'


def read_frontier_text(text: str) -> Frontier:
    """Raises invalid_request."""
    try:
        return read_frontier(read_body(text.encode()))
    except Unreadable as error:
        raise unreadable(error) from error


async def at_of(at: Annotated[str | None, Query(description=WHAT)] = None) -> Frontier | None:
    return None if at is None else read_frontier_text(at)


#: The past that is asked about; None is now.
AtDep = Annotated[Frontier | None, Depends(at_of)]
