"""The server's own checkpoint at the head: one consistent, streaming read that delays no push."""

from hashlib import sha256

import orjson
from sqlalchemy.ext.asyncio import AsyncEngine

from app.services.state_text import state_pieces
from app.sql import checkpoints, devices, scope_tags
from app.sql.transactions import Driver, begun, exclusive, reading
from foldpoint.canonical import canonical
from foldpoint.frontier import Covered
from foldpoint.state import address

#: As long as the address it stands for, until that is known.
UNKNOWN = "ckpt-" + "0" * 32


async def make_at_head(engine: AsyncEngine, scope: int) -> int:
    """Store a checkpoint of all that is folded now; returns the id of it, or of an equal one."""
    async with reading(engine) as snapshot, exclusive(engine) as pg:
        source = await begun(snapshot)
        covered = {no: chain.head for no, chain in (await devices.chains(source, scope)).items() if chain.head}
        tags = await scope_tags.covered(source, scope, {no: head.seq for no, head in covered.items()})
        return await _store(source, pg, scope, covered, tags)


async def _store(source: Driver, pg: Driver, scope: int, covered: dict[int, Covered], tags: list[str]) -> int:
    building = await checkpoints.begin(pg, scope, UNKNOWN)
    text = checkpoints.Text(pg, building)
    entries = {head.hlc.device_id: head.to_json() for head in covered.values()}
    opening = b'"frontier":%b,"scopes":%b,"state":' % (canonical(entries), orjson.dumps(tags))
    whole, state = sha256(b"{" + opening), sha256()
    await text.write(b'{"checkpoint_hash":"%b",' % UNKNOWN.encode() + opening)
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
    await text.replace_in_first(UNKNOWN.encode(), hash_.encode())
    await checkpoints.add_frontier(pg, building, covered)
    return await checkpoints.finish(pg, scope, building, hash_, state_hash, text.size)
