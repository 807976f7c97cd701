"""The whole folded state, as `/state` and `/state/hash` give it."""

from asyncio import Semaphore
from collections.abc import AsyncIterator, Mapping
from hashlib import sha256
from tempfile import SpooledTemporaryFile
from typing import Any

import orjson
from sqlalchemy.ext.asyncio import AsyncEngine

from app.services.past import locate, state_at
from app.services.state_text import PIECE_BYTES, state_hash, state_pieces
from app.sql import devices
from app.sql.transactions import Driver, begun, reading
from foldpoint import state

#: A state up to so much waits in memory until it is sent, a larger one in a temporary file.
SPOOLED_BYTES = 4 * 1024 * 1024


async def hash_answer(pg: Driver, scope: int) -> dict[str, Any]:
    """The state's hash, the frontier it is of, and how many envelopes are not opened."""
    return await _head(pg, scope, await state_hash(pg, scope))


async def state_answer(engine: AsyncEngine, whole: Semaphore, scope: int) -> AsyncIterator[bytes]:
    """The answer with the state in it, read from one snapshot to the end before any of it is sent.

    A reader that stops reading so keeps a file waiting, and no connection; what is small stays in memory.
    """
    with SpooledTemporaryFile(SPOOLED_BYTES) as spool:
        async with whole, reading(engine) as connection:
            pg, digest = await begun(connection), sha256()
            async for piece in state_pieces(pg, scope):
                digest.update(piece)
                spool.write(piece)
            head = await _head(pg, scope, state.address("state-", digest.hexdigest()))
        spool.seek(0)
        yield orjson.dumps(head)[:-1] + b',"state":'
        while piece := spool.read(PIECE_BYTES):
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


async def _head(pg: Driver, scope: int, hash_: str) -> dict[str, Any]:
    return {
        "state_hash": hash_,
        "frontier": await _frontier(pg, scope),
        "sealed_ops": await _sealed_ops(pg, scope),
    }


async def _frontier(pg: Driver, scope: int) -> dict[str | None, int]:
    return {chain.device_id: chain.head.seq for chain in (await devices.chains(pg, scope)).values() if chain.head}


async def _sealed_ops(pg: Driver, scope: int) -> int:
    return int(await pg.fetchval("select sealed_ops from scope where id = $1", scope))
