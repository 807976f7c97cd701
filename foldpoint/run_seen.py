"""Every intent outcome ever seen of a run, which the fold forgets and an executor must know (server.md §5, §6)."""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from foldpoint.op import Op, stable_key
from foldpoint.state import Record, record_of
from foldpoint.surfaces import intent


class Status(StrEnum):
    """What an executor may conclude of a run. `IN_DOUBT`: the effect may have happened."""

    COMMITTED = "committed"
    FAILED = "failed"
    IN_DOUBT = "in_doubt"
    NOT_STARTED = "not_started"


class Sighting(NamedTuple):
    """One slot: a run of an agent at an epoch, seen failed or pending. `key` is the intent's stable key."""

    agent_id: str
    key: str
    epoch: int
    failed: bool


Seen = dict[Sighting, Record]


def sightings(ops: Iterable[Op]) -> Seen:
    """The greatest record by (hlc, op_id) of each slot; committed intents leave none."""
    seen: Seen = {}
    for op in ops:
        if intent.is_committed(op.payload):
            continue
        slot = Sighting(
            intent.agent_id(op.payload),
            stable_key(op.payload, op.payload_text),
            intent.epoch(op.payload),
            intent.is_failed(op.payload),
        )
        seen[slot] = max(record_of(op), seen.get(slot, record_of(op)))
    return seen


def status_of(committed: Record | None, seen: Seen) -> Status:
    """What is known of one run, from the oracle's record and the sightings of that run (server.md §6)."""
    if committed is not None:
        return Status.COMMITTED
    if not seen:
        return Status.NOT_STARTED
    failed = {slot.epoch: record for slot, record in seen.items() if slot.failed}
    pending = {slot.epoch: record for slot, record in seen.items() if not slot.failed}
    settled = all(epoch in failed and failed[epoch] > record for epoch, record in pending.items())
    return Status.FAILED if settled else Status.IN_DOUBT


def newest(seen: Seen) -> Record | None:
    """The newest intent seen of one run."""
    return max(seen.values(), default=None)
