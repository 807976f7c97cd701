"""The server's own checkpoint at the head: one consistent, streaming read that delays no push."""

from hashlib import sha256

import orjson
from sqlalchemy.ext.asyncio import AsyncEngine

from app.problems import Problem
from app.services.access import Caller, still_known
from app.services.checkpoints.keeping_checkpoints import keep, sweep
from app.services.reading.state_text import state_pieces
from app.sql import counts, devices, making, scope_tags, scopes, trims
from app.sql.checkpoint_texts import Text
from app.sql.checkpoints import Stored, add_frontier
from app.sql.making import Made
from app.sql.transactions import Driver, begun, exclusive, reading
from foldpoint.canonical import canonical
from foldpoint.frontier import Covered
from foldpoint.state import address

#: As long as the address it stands for, until that is known.
UNKNOWN = b"ckpt-" + b"0" * 32


async def make_at_head(engine: AsyncEngine, scope: int, caller: Caller | None = None) -> Stored:
    """Store a checkpoint of all that is folded now, as the latest; returns it, or an equal one that was stored.

    It takes two connections. One at a time is made in a scope, whichever process asks. Raises sealed_scope; unavailable
    while a retention that was cut short is to be finished; unauthorized if the caller's token was revoked meanwhile.
    """
    async with exclusive(engine) as pg:
        await scopes.work_alone(pg, scope)
        stored = await _make(engine, pg, scope)
        if caller is not None:
            await still_known(pg, caller)
    await sweep(engine, scope)
    return stored


async def make_if_due(engine: AsyncEngine, scope: int, every: int) -> None:
    """The same if it is due and nobody else is at it (server.md §5)."""
    async with exclusive(engine) as pg:
        if not await scopes.may_work_alone(pg, scope) or scope not in await making.due(pg, every, scope):
            return
        await _make(engine, pg, scope)
    await sweep(engine, scope)


async def _make(engine: AsyncEngine, pg: Driver, scope: int) -> Stored:
    if await trims.unfinished(pg, scope) is not None:
        raise Problem("unavailable", "retention was cut short, and is finished first")
    return await keep(pg, scope, await write_at_head(engine, pg, scope))


async def write_at_head(engine: AsyncEngine, pg: Driver, scope: int) -> int:
    """The part that writes it, in the caller's transaction, which works alone on the scope. Raises sealed_scope."""
    async with reading(engine) as snapshot:
        source = await begun(snapshot)
        if await scopes.mode(source, scope) == "sealed":
            raise Problem("sealed_scope", "sealing devices refuse every checkpoint, so none is made")
        covered = {no: chain.head for no, chain in (await devices.chains(source, scope)).items() if chain.head}
        tags = await scope_tags.covered(source, scope, {no: head.seq for no, head in covered.items()})
        building = await making.begin(pg, scope, UNKNOWN.decode())
        made = await _write(source, Text(pg, scope, building), scope, covered, tags)
    await add_frontier(pg, scope, building, covered)
    checkpoint = await making.finish(pg, scope, building, made)
    await scopes.hold(pg, scope)
    await making.note(pg, scope, made)
    return checkpoint


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
