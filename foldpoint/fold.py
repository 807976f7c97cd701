"""The fold: ops to SyncState, the only place where records compete (car-sync.md §6, §8.3)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from foldpoint.canonical import Json, canonical
from foldpoint.hlc import Hlc
from foldpoint.op import Op
from foldpoint.state import AgentIntents, Entries, Record, SyncState, record_of
from foldpoint.surfaces import Tier, intent, surface_of


def fold(ops: Iterable[Op]) -> SyncState:
    return fold_onto(SyncState(), ops)


def fold_at(ops: Iterable[Op], frontier: Mapping[str, int]) -> SyncState:
    """The fold of what a frontier holds; a device it does not name contributes nothing (§6.8)."""
    return fold(op for op in ops if op.seq <= frontier.get(op.device_id, -1))


def fold_onto(base: SyncState, ops: Iterable[Op]) -> SyncState:
    """A new state: the base's records and the ops compete by the same rules (§6.7).

    A base that holds only the records these ops touch gives the same records as the whole state
    would, if an agent's pendings count as touched by its intents.
    """
    logs, registries, intents = dict(base.logs), dict(base.registries), dict(base.intents)
    by_tag: dict[str, list[Op]] = defaultdict(list)
    for op in _distinct(ops):
        by_tag[op.surface].append(op)
    by_agent: dict[str, list[Op]] = defaultdict(list)
    for tag, batch in by_tag.items():
        tier = surface_of(tag).tier
        if tier is Tier.LEASED:
            for op in batch:
                by_agent[intent.agent_id(op.payload)].append(op)
            continue
        group = logs if tier is Tier.GROW_ONLY else registries
        group[tag] = entries = dict(group.get(tag, {}))
        for op in batch:
            _compete(entries, op, latest=tier is Tier.REGISTRY)
    for agent, batch in by_agent.items():
        intents[agent] = _fold_intents(intents.get(agent, AgentIntents()), batch)
    return SyncState(logs, registries, intents)


def _distinct(ops: Iterable[Op]) -> Iterable[Op]:
    """One op per op_id; of different ops with one id, the smaller canonical record (§6.2)."""
    by_id: dict[str, Op] = {}
    for op in ops:
        other = by_id.setdefault(op.op_id, op)
        if other is not op and canonical(op.to_json()) < canonical(other.to_json()):
            by_id[op.op_id] = op
    return by_id.values()


def _compete(entries: Entries, op: Op, *, latest: bool) -> None:
    record, key = record_of(op), op.fold_key
    held = entries.get(key)
    if held is None or (record[:2] > held[:2] if latest else record[:2] < held[:2]):
        entries[key] = record


def _fold_intents(base: AgentIntents, batch: list[Op]) -> AgentIntents:
    epoch = max(base.fencing_epoch, *(intent.epoch(op.payload) for op in batch))
    runs = dict(base.runs)
    if epoch > base.fencing_epoch:
        runs = {key: record for key, record in runs.items() if intent.is_terminal(record.value())}
    folded = AgentIntents(epoch, runs, dict(base.committed_runs))
    for op in batch:
        if intent.is_committed(op.payload):
            _take_greater(folded.committed_runs, op)
        if intent.is_terminal(op.payload) or intent.epoch(op.payload) == epoch:
            _take_greater(folded.runs, op)
    return folded


def _take_greater(entries: Entries, op: Op) -> None:
    key, record = op.fold_key, record_of(op)
    held = entries.get(key)
    if held is None or _priority(op.payload, record) > _priority(held.value(), held):
        entries[key] = record


def _priority(payload: Json, record: Record) -> tuple[bool, int, tuple[Hlc, str]]:
    return intent.is_terminal(payload), intent.epoch(payload), record[:2]
