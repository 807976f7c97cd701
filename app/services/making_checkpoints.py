"""The server's own checkpoint at the head: one consistent, streaming read that delays no push."""

from hashlib import sha256

import orjson
from sqlalchemy.ext.asyncio import AsyncEngine

from app.services.keeping_checkpoints import keep
from app.services.state_text import state_pieces
from app.sql import counts, devices, making, scope_tags, scopes
from app.sql.checkpoint_texts import Text
from app.sql.checkpoints import Stored, add_frontier
from app.sql.making import Made
from app.sql.transactions import Driver, begun, exclusive, reading
from foldpoint.canonical import canonical
from foldpoint.frontier import Covered
from foldpoint.state import address

#: As long as the address it stands for, until that is known.
UNKNOWN = b"ckpt-" + b"0" * 32


async def make_at_head(engine: AsyncEngine, scope: int) -> Stored:
    """Store a checkpoint of all that is folded now, as the latest; returns it, or an equal one that was stored.

    It takes two connections. One at a time is made in a scope, whichever process asks.
    """
    async with exclusive(engine) as pg:
        await scopes.work_alone(pg, scope)
        made = await write_at_head(engine, pg, scope)
    return await keep(engine, scope, made)


async def make_if_due(engine: AsyncEngine, scope: int, every: int) -> None:
    """The same if it is due and nobody else is at it (server.md §5)."""
    async with exclusive(engine) as pg:
        if not await scopes.may_work_alone(pg, scope) or scope not in await making.due(pg, every, scope):
            return
        made = await write_at_head(engine, pg, scope)
    await keep(engine, scope, made)


async def write_at_head(engine: AsyncEngine, pg: Driver, scope: int) -> int:
    """The part that writes it, in the caller's transaction, which works alone on the scope."""
    async with reading(engine) as snapshot:
        source = await begun(snapshot)
        covered = {no: chain.head for no, chain in (await devices.chains(source, scope)).items() if chain.head}
        tags = await scope_tags.covered(source, scope, {no: head.seq for no, head in covered.items()})
        building = await making.begin(pg, scope, UNKNOWN.decode())
        made = await _write(source, Text(pg, scope, building), scope, covered, tags)
    await add_frontier(pg, scope, building, covered)
    return await making.finish(pg, scope, building, made)


async def _write(source: Driver, text: Text, scope: int, covered: dict[int, Covered], tags: list[str]) -> Made:
    entries = {head.hlc.device_id: head.to_json() for head in covered.values()}
    opening = b'"frontier":%b,"scopes":%b,"state":' % (canonical(entries), orjson.dumps(tags))
    whole, state = sha256(b"{" + opening), sha256()
    await text.write(b'{"checkpoint_hash":"%b",' % UNKNOWN + opening)
    async for piece in state_pieces(source, scope):
        whole.update(piece)
        state.update(piece)
        await text.write(piece)
    state_hash = address("state-", state.hexdigest())
    closing = b',"state_hash":"%b"}' % state_hash.encode()
    whole.update(closing)
    await text.write(closing)
    await text.finish()
    hash_ = address("ckpt-", whole.hexdigest())
    await text.replace_in_first(UNKNOWN, hash_.encode())
    return Made(hash_, state_hash, text.size, *await counts.accepted_and_records(source, scope))
