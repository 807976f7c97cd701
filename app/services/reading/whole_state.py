"""The whole folded state, as `/state`, `/state/hash` and `/diff` give it."""

import asyncio
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import orjson

from app.services.reading.past import locate, state_at
from app.services.reading.spool import Spool
from app.services.reading.state_text import state_hash, state_pieces
from app.sql import devices, scopes
from app.sql.transactions import Driver
from foldpoint.difference import difference_members
from foldpoint.seal import Keyring
from foldpoint.state import SyncState, address


async def hash_answer(pg: Driver, scope: int) -> dict[str, Any]:
    """The state's hash, the frontier it is of, and how many envelopes are not opened."""
    return await _head(pg, scope, await state_hash(pg, scope))


async def state_answer(pg: Driver, scope: int) -> Spool:
    """The answer with the state in it."""
    spool, digest = Spool(), sha256()
    async for piece in state_pieces(pg, scope):
        digest.update(piece)
        spool.write(piece)
    return _headed(spool, await _head(pg, scope, address("state-", digest.hexdigest())))


async def state_at_answer(pg: Driver, scope: int, frontier: Mapping[str, int], keyring: Keyring | None) -> Spool:
    """The answer for a past frontier. Raises frontier_collected."""
    folded = await state_at(pg, scope, await locate(pg, scope, frontier), keyring)
    sealed_ops = await scopes.sealed_ops(pg, scope)
    return await asyncio.to_thread(_spooled, folded, dict(frontier), sealed_ops)


def _spooled(folded: SyncState, frontier: dict[str, int], sealed_ops: int) -> Spool:
    spool, digest = Spool(), sha256()
    for piece in folded.pieces():
        digest.update(piece)
        spool.write(piece)
    head = {"state_hash": address("state-", digest.hexdigest()), "frontier": frontier, "sealed_ops": sealed_ops}
    return _headed(spool, head)


def _headed(spool: Spool, head: dict[str, Any]) -> Spool:
    """The answer with this head around the state that was spooled."""
    spool.head, spool.end = orjson.dumps(head)[:-1] + b',"state":', b"}"
    return spool


async def diff_answer(
    pg: Driver, scope: int, old: Mapping[str, int], new: Mapping[str, int], keyring: Keyring | None
) -> Spool:
    """What differs between the states at two frontiers. Raises frontier_collected."""
    before = await state_at(pg, scope, await locate(pg, scope, old), keyring)
    after = await state_at(pg, scope, await locate(pg, scope, new), keyring)
    return await asyncio.to_thread(_spooled_difference, before, after, {"from": dict(old), "to": dict(new)})


def _spooled_difference(before: SyncState, after: SyncState, between: dict[str, Any]) -> Spool:
    spool = Spool()
    spool.head, spool.end = orjson.dumps(between)[:-1] + b",", b"}"
    for piece in difference_members(before, after):
        spool.write(piece)
    return spool


async def _head(pg: Driver, scope: int, hash_: str) -> dict[str, Any]:
    return {
        "state_hash": hash_,
        "frontier": await _frontier(pg, scope),
        "sealed_ops": await scopes.sealed_ops(pg, scope),
    }


async def _frontier(pg: Driver, scope: int) -> dict[str | None, int]:
    return {chain.device_id: chain.head.seq for chain in (await devices.chains(pg, scope)).values() if chain.head}
