"""Run ledgers (run-ledger.md)."""

from typing import Any

import orjson

from app.services.projections.streams import MANY, Fold, Folded, Read, Where
from app.services.projections.whole_ledgers import WholeLedger
from app.sql.transactions import Driver
from foldpoint.canonical import Json, canonical
from foldpoint.projections import RUN_LEDGER
from foldpoint.run_ledger.answers import run_answer
from foldpoint.run_ledger.merge import Merged, merge
from foldpoint.run_ledger.snapshot import Snapshot, read_snapshot
from foldpoint.state import Record

#: A merge stands for its snapshot, which is made when something goes on from it.
Onto = Merged | Snapshot


def _settled(onto: Onto) -> Snapshot:
    return onto.settle()[0] if isinstance(onto, Merged) else onto


def _read(text: bytes) -> Onto:
    return read_snapshot(orjson.loads(text))


def _write(onto: Onto) -> bytes:
    return canonical(_settled(onto).to_json())


def _told(now: Merged) -> Json:
    return [now.state.to_json(), now.blocked_at, now.sealed, now.epoch]


def _extend(run: str, onto: Onto, records: list[Record]) -> Folded[Merged, Onto]:
    merged = merge(run, records, _settled(onto))
    return Folded(merged, merged)


async def _whole(pg: Driver, where: Where, run: str) -> Folded[Merged, Onto]:
    merged = await (await WholeLedger.of(pg, where, run)).merged()
    return Folded(merged, merged)


FOLD: Fold[Merged, Onto] = Fold(
    RUN_LEDGER, Snapshot, _read, _write, lambda onto: onto.through, _told, _extend, _settled, _whole
)


def settled_below(read: Read[Merged]) -> int:
    """Of a long run, the seq from which on statuses are told at once: nothing below it changes by what is written now.

    A short one has no snapshot, and tells them all.
    """
    return read.now.cut() if read.entries >= MANY else 0


def answer(read: Read[Merged]) -> dict[str, Any]:
    """A run in the shapes of the vectors; beside them how far it is sealed, who runs it, and its last record."""
    merged, start = read.now, settled_below(read)
    last = merged.folded[-1] if merged.folded else None
    return {
        **run_answer(merged, start),
        "settled": start,
        "sealed": merged.sealed,
        "agent_id": merged.state.agent_id,
        "entries": read.entries,
        "last": last
        and {"id": last.place.id, "seq": last.seq, "op_id": last.place.op_id, "device_id": last.place.hlc.device_id},
    }


def listed(run: str, read: Read[Merged]) -> dict[str, Any]:
    """A run in a list."""
    merged = read.now
    command: Any = merged.state.command
    return {
        "run_id": run,
        "agent_id": merged.state.agent_id,
        "phase": merged.state.phase["phase"],
        "command": command and command["command"],
        "next_seq": merged.state.next_seq,
        "blocked_at": merged.blocked_at,
        "sealed": merged.sealed,
        "entries": read.entries,
    }
