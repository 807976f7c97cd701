"""The fold as the server does it: over the records that a batch can change, and nothing else (server.md §5)."""

from collections.abc import Iterable

from foldpoint.fold import fold_onto
from foldpoint.op import Op
from foldpoint.state import AgentIntents, Entries, SyncState
from foldpoint.surfaces import Tier, intent, surface_of


def fold_touched(stored: SyncState, batch: list[Op]) -> None:
    """Read the touched records, fold the batch onto them, and write back what changed."""
    read = SyncState()
    for op in batch:
        match surface_of(op.surface).tier:
            case Tier.LEASED:
                agent = intent.agent_id(op.payload)
                read.intents[agent] = touched_intents(stored.intents.get(agent), batch, agent)
            case Tier.GROW_ONLY:
                copy_entry(stored.logs.get(op.surface), read.logs.setdefault(op.surface, {}), op.fold_key)
            case Tier.REGISTRY:
                copy_entry(stored.registries.get(op.surface), read.registries.setdefault(op.surface, {}), op.fold_key)
    folded = fold_onto(read, batch)
    for before, after, kept in (
        (read.logs, folded.logs, stored.logs),
        (read.registries, folded.registries, stored.registries),
    ):
        for tag, entries in after.items():
            write_back(before[tag], entries, kept.setdefault(tag, {}))
    for agent, intents in folded.intents.items():
        row = stored.intents.setdefault(agent, AgentIntents())
        row.fencing_epoch = intents.fencing_epoch
        write_back(read.intents[agent].runs, intents.runs, row.runs)
        write_back(read.intents[agent].committed_runs, intents.committed_runs, row.committed_runs)


def touched_intents(stored: AgentIntents | None, batch: Iterable[Op], agent: str) -> AgentIntents:
    """The agent's fence, its records under the batch's keys, and all its pendings: a rising fence evicts them."""
    touched = AgentIntents()
    if stored is None:
        return touched
    ops = [op for op in batch if op.surface == "intent" and intent.agent_id(op.payload) == agent]
    for op in ops:
        copy_entry(stored.runs, touched.runs, op.fold_key)
        copy_entry(stored.committed_runs, touched.committed_runs, op.fold_key)
    pendings = {key: record for key, record in stored.runs.items() if not intent.is_terminal(record.value())}
    return AgentIntents(stored.fencing_epoch, touched.runs | pendings, touched.committed_runs)


def copy_entry(source: Entries | None, target: Entries, key: str) -> None:
    if source and key in source:
        target[key] = source[key]


def write_back(read: Entries, folded: Entries, stored: Entries) -> None:
    """Only changes are written, and what was read and is gone is deleted."""
    for key in read.keys() - folded.keys():
        del stored[key]
    stored.update({key: record for key, record in folded.items() if read.get(key) != record})
