"""Rows of a long answer, a page in memory at a time, and never much of it: a large payload comes by itself."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from app.sql.ops import OP_PAYLOAD
from app.sql.transactions import Driver, Row

PAGE_ROWS = 500
#: So many are worked on before others have their turn: pushes wait for each step, several times each.
STEP_ROWS = 125
#: The largest payload that comes with its page, in bytes.
SMALL = 16 * 1024

#: One payload of an event stream, from the op or, where that is gone, its base row.
EVENT_PAYLOAD = f"""
select {OP_PAYLOAD} from op
where scope = $1 and wall_ms = $3 and counter = $4 and device = $5 and op_id = $6 and stream is not null
union all
select payload from record where scope = $1 and surface = $2 and kind = ''::bytea and key = $6
"""


def small(size: str, payload: str) -> str:
    """The SQL of a payload that is null where it is not small."""
    return f"case when length({size}) <= {SMALL} then {payload} end as payload"


async def pages(
    pg: Driver, query: str, *args: Any, payload_of: Callable[[Row], Awaitable[bytes]]
) -> AsyncIterator[list[Row]]:
    """The rows of a query through a server-side cursor; where the payload is null, it is asked for."""
    cursor = await pg.cursor(query, *args)
    while rows := await cursor.fetch(PAGE_ROWS):
        for start in range(0, len(rows), STEP_ROWS):
            await asyncio.sleep(0)
            async for step in _with_payloads(rows[start : start + STEP_ROWS], payload_of):
                yield step


async def _with_payloads(
    rows: Sequence[Row], payload_of: Callable[[Row], Awaitable[bytes]]
) -> AsyncIterator[list[Row]]:
    step: list[Row] = []
    for row in rows:
        if row["payload"] is not None:
            step.append(row)
            continue
        if step:
            yield step
            step = []
        yield [{**row, "payload": await payload_of(row)}]
    if step:
        yield step


def event_payload(pg: Driver, scope: int, surface: int) -> Callable[[Row], Awaitable[bytes]]:
    """The payload of a row of an event stream."""

    async def read(row: Row) -> bytes:
        place = row["wall_ms"], row["counter"], row["device"], row["op_id"]
        payload: bytes = await pg.fetchval(EVENT_PAYLOAD, scope, surface, *place)
        return payload

    return read
