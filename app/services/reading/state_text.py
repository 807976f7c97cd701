"""The canonical text of a scope's folded state, read from its records in one snapshot (car-sync.md §6.9)."""

from collections.abc import AsyncIterator
from hashlib import sha256

import orjson

from app.sql import state
from app.sql.state import Members
from app.sql.transactions import Driver
from foldpoint.state import address
from foldpoint.surfaces import BY_NAME

#: Pieces are joined to about so much before they are passed on.
PIECE_BYTES = 64 * 1024


async def state_pieces(pg: Driver, scope: int) -> AsyncIterator[bytes]:
    """The canonical JSON of SyncState, in pieces; the same bytes as `SyncState.pieces()` of the folded ops."""
    buffer = bytearray()
    async for part in _parts(pg, scope):
        buffer += part
        if len(buffer) >= PIECE_BYTES:
            yield bytes(buffer)
            buffer.clear()
    yield bytes(buffer)


async def state_hash(pg: Driver, scope: int) -> str:
    digest = sha256()
    async for piece in state_pieces(pg, scope):
        digest.update(piece)
    return address("state-", digest.hexdigest())


async def _parts(pg: Driver, scope: int) -> AsyncIterator[bytes]:
    yield b'{"intents":{'
    lead = b""
    for agent in await state.agents(pg, scope):
        yield b"%b%b:" % (lead, orjson.dumps(agent.name))
        async for part in _members(b'{"committed_runs":{', state.committed(pg, scope, agent.key), opened=True):
            yield part
        async for part in _members(
            b'},"fencing_epoch":%d,"runs":{' % agent.fencing_epoch, state.runs(pg, scope, agent.key), opened=True
        ):
            yield part
        yield b"}}"
        lead = b","
    yield b'},"logs":'
    async for part in _object([(name, state.log(pg, scope, BY_NAME[name])) for name in state.LOGS]):
        yield part
    yield b',"registries":'
    kinds = await state.registry_kinds(pg, scope)
    async for part in _object([(tag, state.entries(pg, scope, surface, kind)) for tag, surface, kind in kinds]):
        yield part
    yield b"}"


async def _object(groups: list[tuple[str, Members]]) -> AsyncIterator[bytes]:
    """An object of objects of records; a group without a record is left out."""
    opening = b"{"
    for tag, members in groups:
        began = False
        async for part in _members(b"%b%b:{" % (opening, orjson.dumps(tag)), members):
            began = True
            yield part
        if began:
            yield b"}"
            opening = b","
    yield b"}" if opening == b"," else b"{}"


async def _members(head: bytes, members: Members, *, opened: bool = False) -> AsyncIterator[bytes]:
    """`head`, then the members of an object of records; nothing without a record, unless `opened`."""
    lead = head
    async for piece in members:
        yield lead + piece
        lead = b","
    if opened and lead is head:
        yield head
