"""The whole folded state, as `/state` and `/state/hash` give it."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import orjson
from sqlalchemy.ext.asyncio import AsyncEngine

from app.services.past import locate, state_at
from app.services.state_text import state_hash, state_pieces
from app.sql import devices
from app.sql.transactions import Driver, begun, reading
from foldpoint import state


async def hash_answer(pg: Driver, scope: int) -> dict[str, Any]:
    """The state's hash, the frontier it is of, and how many envelopes are not opened."""
    return {
        "state_hash": await state_hash(pg, scope),
        "frontier": await _frontier(pg, scope),
        "sealed_ops": await _sealed_ops(pg, scope),
    }


async def state_answer(engine: AsyncEngine, scope: int) -> AsyncIterator[bytes]:
    """The answer with the state in it, streamed from one snapshot: the hash first, then the same text."""
    async with reading(engine) as connection:
        pg = await begun(connection)
        head = orjson.dumps(await hash_answer(pg, scope))
        yield head[:-1] + b',"state":'
        async for piece in state_pieces(pg, scope):
            yield piece
        yield b"}"


async def state_at_answer(pg: Driver, scope: int, frontier: Mapping[str, int]) -> bytes:
    """The answer for a past frontier. Raises frontier_collected."""
    past = await locate(pg, scope, frontier)
    folded = await state_at(pg, scope, past)
    head = {
        "state_hash": state.state_hash(folded),
        "frontier": dict(frontier),
        "sealed_ops": await _sealed_ops(pg, scope),
    }
    return orjson.dumps(head)[:-1] + b',"state":' + folded.text() + b"}"


async def _frontier(pg: Driver, scope: int) -> dict[str | None, int]:
    return {chain.device_id: chain.head.seq for chain in (await devices.chains(pg, scope)).values() if chain.head}


async def _sealed_ops(pg: Driver, scope: int) -> int:
    return int(await pg.fetchval("select sealed_ops from scope where id = $1", scope))
