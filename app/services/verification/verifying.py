"""`foldpoint verify`: everything that is stored of a scope, checked against what the ops say.

Chains are recomputed op by op; records, intents and conversations are compared with a refold from the base
checkpoint and the ops; run_seen with the sightings in the ops, and so the entries of the projections, with their
snapshots; checkpoints with their hashes and our own fold.
Of an unlocked scope the refold opens what is sealed; without the key file its chains are checked alone.
"""

from collections.abc import AsyncIterator, Callable

from sqlalchemy.ext.asyncio import AsyncEngine

from app.problems import Problem
from app.services.keys.vault import Vault
from app.services.reading import past
from app.services.reading.state_text import state_pieces
from app.services.verification.checking_chains import Chains, check_chains
from app.services.verification.checking_entries import check_streams
from app.services.verification.checking_snapshots import check_snapshots
from app.sql import audit, checkpoint_texts, checkpoints, devices, scope_keys, streams, trims
from app.sql.checkpoint_texts import TextGone
from app.sql.checkpoints import Stored
from app.sql.rows import record_of
from app.sql.scope_keys import Held
from app.sql.transactions import Driver, begun, reading
from foldpoint.canonical import read_json
from foldpoint.checkpoint import CheckpointError, read_checkpoint
from foldpoint.difference import changes, fence_changes
from foldpoint.frontier import dominates
from foldpoint.seal import Keyring
from foldpoint.state import SyncState, read_state
from foldpoint.surfaces import conversation
from foldpoint.transcript import turns


async def readable(engine: AsyncEngine, scope: int, vault: Vault) -> bool:
    """Whether `verify` can check all of a scope: not what is folded of one whose key file is missing here."""
    async with reading(engine) as connection:
        known = await scope_keys.held(await begun(connection), scope)
    return known.stored is None or _keyring(known, scope, vault) is not None


def _keyring(known: Held, scope: int, vault: Vault) -> Keyring | None:
    if known.stored is None:
        return None
    try:
        return vault.read(scope, known.stored)
    except Problem:
        return None


async def verify(
    engine: AsyncEngine, scope: int, watch: Callable[[], object] = lambda: None, vault: Vault | None = None
) -> AsyncIterator[str]:
    """One sentence per fault found, on one snapshot; nothing where all is well. `watch` is called after each op."""
    async with reading(engine) as connection:
        pg = await begun(connection)
        known = await scope_keys.held(pg, scope)
        keyring = _keyring(known, scope, vault or Vault()) if known.state == "unlocked" else None
        chains = Chains(await audit.first_seqs(pg, scope), watch=watch, keyring=keyring)
        async for fault in check_chains(pg, scope, chains):
            yield fault
        async for fault in _check_counters(pg, scope, chains):
            yield fault
        if known.mode == "sealed" and keyring is None:
            return
        if await trims.unfinished(pg, scope) is not None:
            yield "retention was cut short: `foldpoint gc` goes on with it; the state was not checked"
        else:
            async for fault in _check_state(pg, scope, keyring):
                yield fault
        for check in (
            _check_seen(pg, scope, chains),
            check_streams(pg, scope),
            check_snapshots(pg, scope),
            _check_resets(pg, scope),
            _check_checkpoints(pg, scope),
        ):
            async for fault in check:
                yield fault


async def _check_counters(pg: Driver, scope: int, chains: Chains) -> AsyncIterator[str]:
    row = await audit.scope_row(pg, scope)
    opened, settled = await scope_keys.counts(pg, scope)
    sealed, closed = chains.sealed, chains.closed_intents
    if chains.keyring is None:
        sealed, closed = sealed - opened, closed - settled
    elif (opened, settled) != (chains.ops - sealed, chains.settled_intents):
        yield "the scope's keys do not count the ops that they opened"
    expected = {"ops": chains.ops, "sealed_ops": sealed, "closed_intents": closed}
    for name, count in expected.items():
        if row[name] != count:
            yield f"the scope counts {row[name]} {name}, there are {count}"
    if row["max_wall_ms"] < chains.max_wall_ms:
        yield f"the scope's highest stamp is {row['max_wall_ms']} ms, an op has {chains.max_wall_ms} ms"


async def _check_state(pg: Driver, scope: int, keyring: Keyring | None) -> AsyncIterator[str]:
    heads = {c.device_id: c.head.seq for c in (await devices.chains(pg, scope)).values() if c.device_id and c.head}
    try:
        folded = await past.state_at(pg, scope, await past.locate(pg, scope, heads, await _origin(pg, scope)), keyring)
    except Problem as problem:
        yield f"the state cannot be rebuilt: {problem.detail}"
        return
    text = b"".join([piece async for piece in state_pieces(pg, scope)])
    if text != folded.text():
        for fault in _differences(read_state(read_json(text)), folded):
            yield fault
    async for fault in _check_conversations(pg, scope, folded):
        yield fault


async def _check_conversations(pg: Driver, scope: int, folded: SyncState) -> AsyncIterator[str]:
    said = turns(folded.log_entries(conversation.SURFACE.name))
    expected = streams.growth_of((turn.conversation_id, turn.record.hlc) for turn in said)
    listed = {one.name: one for one in await streams.every(pg, scope, conversation.SURFACE.number)}
    for name in sorted(expected.keys() | listed.keys()):
        turns_listed = listed[name].records if name in listed else 0
        turns_said = expected[name].records if name in expected else 0
        if turns_listed != turns_said:
            yield f"conversation {name!r} lists {turns_listed} turns, there are {turns_said}"
        elif (listed[name].first, listed[name].last) != (expected[name].first, expected[name].last):
            yield f"conversation {name!r} lists other first and last stamps than its turns have"


async def _origin(pg: Driver, scope: int) -> list[int]:
    """Where a refold begins: at the pinned base if ops were dropped, else at nothing, never at what it checks."""
    dropped = any(floor["dropped_below"] for floor in await audit.floors(pg, scope))
    base = (await audit.scope_row(pg, scope))["base_checkpoint"]
    return [base] if dropped and base is not None else []


def _differences(stored: SyncState, folded: SyncState) -> list[str]:
    records = [
        f"{change.where}: the record at {change.key!r} is not the folded one" for change in changes(stored, folded)
    ]
    return records + [
        f"agent {change.agent_id!r}: the fence is not the folded one" for change in fence_changes(stored, folded)
    ]


async def _check_seen(pg: Driver, scope: int, chains: Chains) -> AsyncIterator[str]:
    held = {
        (row["agent"].decode(), row["key"], int(row["epoch"]), row["failed"]): record_of(row)
        for row in await audit.seen(pg, scope)
    }
    for slot, record in chains.seen.items():
        if slot not in held or held[slot] < record:
            yield f"run_seen of agent {slot[0]!r} lacks op {record.op_id}"


async def _check_resets(pg: Driver, scope: int) -> AsyncIterator[str]:
    for row in await audit.unfounded_resets(pg, scope):
        yield f"a claim of agent {row['claimed_by'].decode()!r} was let go that no intent made: epoch {row['claim']}"


async def _check_checkpoints(pg: Driver, scope: int) -> AsyncIterator[str]:
    row = await audit.scope_row(pg, scope)
    stored = await checkpoints.listed(pg, scope, 2**63 - 1, 2**31 - 1)
    for one in stored:
        earlier = [other.id for other in stored if other.id < one.id and other.trims == one.trims]
        async for fault in _check_checkpoint(pg, scope, one, earlier):
            yield f"checkpoint {one.hash}: {fault}"
    for pointer in ("latest_checkpoint", "base_checkpoint"):
        if row[pointer] is not None and row[pointer] not in {one.id for one in stored}:
            yield f"the scope's {pointer} is not stored"
    floors = {
        floor["no"]: floor["dropped_below"] - 1 for floor in await audit.floors(pg, scope) if floor["dropped_below"]
    }
    base = (await checkpoints.answering(pg, scope)).get(row["base_checkpoint"], {})
    if not dominates(base, floors):
        yield "the base does not cover every device's floor"


async def _check_checkpoint(pg: Driver, scope: int, stored: Stored, earlier: list[int]) -> AsyncIterator[str]:
    """Hashes and text of a checkpoint; and its state against a fold that begins at an earlier one, or at nothing.

    A checkpoint below whose frontier ops were dropped, and that nothing earlier leads to, is the origin itself; so
    is the first that retention trimmed.
    """
    try:
        text = b"".join([piece async for piece in checkpoint_texts.text(pg, stored)])
    except TextGone as error:
        yield str(error)
        return
    checkpoint = read_checkpoint(read_json(text))
    try:
        checkpoint.verify()
    except CheckpointError as error:
        yield str(error)
    if (checkpoint.checkpoint_hash, checkpoint.state_hash) != (stored.hash, stored.state_hash):
        yield "its text is of another checkpoint"
    if b"".join(checkpoint.pieces()) != text or len(text) != stored.size:
        yield "its text is not canonical"
    if await checkpoints.frontier(pg, scope, stored.id) != checkpoint.frontier:
        yield "its frontier's rows are not those of its text"
    try:
        own = await past.checkpoint_at(pg, scope, {d: entry.seq for d, entry in checkpoint.frontier.items()}, earlier)
    except Problem:
        return
    if own.trims == stored.trims and own.checkpoint.state_hash != checkpoint.state_hash:
        yield "its state is not the fold of the ops"
