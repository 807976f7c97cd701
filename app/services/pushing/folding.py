"""What a batch of admitted ops does to the folded state: the one fold, over the keys the batch touches."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from app.services.pushing.noting import note_entries
from app.sql import intents, records, seen, streams
from app.sql.intents import COMMITTED, RUNS, IntentRow
from app.sql.records import Slot, Winner
from app.sql.transactions import Driver
from app.sql.writes import Writes
from foldpoint.fold import fold_onto
from foldpoint.hlc import Hlc
from foldpoint.op import Op
from foldpoint.run_seen import sightings
from foldpoint.state import AgentIntents, Entries, SyncState
from foldpoint.surfaces import Tier, conversation, intent, kind_of, surface_of

#: Device id to device number, of the devices whose ops are folded.
Numbers = dict[str, int]


async def fold_into_records(pg: Driver, writes: Writes, scope: int, ops: Sequence[Op], numbers: Numbers) -> None:
    """Bring records, entries, intents, run_seen and the list of conversations up to date, under the scope's lock.

    Ops of event streams are their own records and need nothing but their stream.
    """
    surfaces = {tag: surface_of(tag) for tag in {op.surface for op in ops}}
    keyed = _those(ops, {tag for tag, surface in surfaces.items() if surface.keyed})
    leased = _those(ops, {tag for tag, surface in surfaces.items() if surface.tier is Tier.LEASED})
    streams.grow(writes, scope, conversation.SURFACE.number, streams.growth_of(_turns(ops)))
    if keyed:
        await _fold_keyed(pg, writes, scope, keyed, numbers)
        await note_entries(pg, writes, scope, keyed, numbers)
    if leased:
        await _fold_leased(pg, writes, scope, leased, numbers)


def _those(ops: Sequence[Op], tags: set[str]) -> list[Op]:
    return [op for op in ops if op.surface in tags] if tags else []


def _turns(ops: Iterable[Op]) -> Iterable[tuple[str, Hlc]]:
    for op in ops:
        if op.surface == conversation.SURFACE.name and not conversation.is_tombstone(op.payload):
            yield conversation.conversation_id(op.payload), op.hlc


async def _fold_keyed(pg: Driver, writes: Writes, scope: int, ops: Sequence[Op], numbers: Numbers) -> None:
    slots = {Slot(op.surface, op.fold_key) for op in ops}
    held = await records.touched(pg, scope, slots)
    base = SyncState()
    for slot, record in held.items():
        _group(base, slot.tag).setdefault(slot.tag, {})[slot.key] = record
    folded = fold_onto(base, ops)
    tags = {slot.tag for slot in slots}
    changed = {tag: _winners(_group(base, tag).get(tag, {}), _group(folded, tag)[tag], numbers) for tag in tags}
    await records.put(pg, writes, scope, changed)
    records.name_kinds(writes, scope, map(kind_of, tags))


def _group(state: SyncState, tag: str) -> dict[str, Entries]:
    return state.logs if surface_of(tag).tier is Tier.GROW_ONLY else state.registries


def _winners(before: Entries, after: Entries, numbers: Numbers) -> list[Winner]:
    return [
        Winner(key, record, numbers[record.hlc.device_id], key not in before)
        for key, record in after.items()
        if before.get(key) != record
    ]


async def _fold_leased(pg: Driver, writes: Writes, scope: int, ops: Sequence[Op], numbers: Numbers) -> None:
    epochs: dict[str, int] = defaultdict(int)
    for op in ops:
        agent = intent.agent_id(op.payload)
        epochs[agent] = max(epochs[agent], intent.epoch(op.payload))
    keys = {(intent.agent_id(op.payload), op.fold_key) for op in ops}
    held = await intents.touched(pg, scope, keys, epochs)
    folded = fold_onto(SyncState(intents=held), ops).intents
    fences = {agent: after.fencing_epoch for agent, after in folded.items()}
    known = {agent: before.fencing_epoch for agent, before in held.items()}
    intents.raise_fences(writes, scope, dict(fences.items() - known.items()))
    intents.put(writes, scope, _changes(held, folded, numbers))
    seen.put(writes, scope, sightings(ops), numbers)


def _changes(held: dict[str, AgentIntents], folded: dict[str, AgentIntents], numbers: Numbers) -> Iterable[IntentRow]:
    for agent, after in folded.items():
        before = held.get(agent, AgentIntents())
        views = ((RUNS, before.runs, after.runs), (COMMITTED, before.committed_runs, after.committed_runs))
        for view, old, new in views:
            for key in old.keys() - new.keys():
                yield IntentRow(agent, view, key, None, 0)
            for key, record in new.items():
                if old.get(key) != record:
                    yield IntentRow(agent, view, key, record, numbers[record.hlc.device_id])
