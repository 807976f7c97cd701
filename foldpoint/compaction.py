"""A device's plan to replace the stable part of its log by a checkpoint (car-sync.md §10.1, §10.5).

CompactionError
  NothingAcked    no device ever acknowledged
  UnackedDevice   a device in the log never did
Further: ChainError of the log, RetentionError of the policy.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from foldpoint.chain import verify_log
from foldpoint.checkpoint import Checkpoint, checkpoint_from_ops, make_checkpoint
from foldpoint.hlc import Hlc
from foldpoint.op import Op
from foldpoint.retention import Policy, newest_timestamp, retain
from foldpoint.state import record_of


class CompactionError(Exception):
    pass


class NothingAcked(CompactionError):
    pass


class UnackedDevice(CompactionError):
    def __init__(self, device_id: str) -> None:
        super().__init__(f"device {device_id} never acknowledged")
        self.device_id = device_id


class Acks:
    """What each device acknowledged: monotone, an ack at or below the current one changes nothing."""

    def __init__(self, acked: Mapping[str, Hlc] | None = None) -> None:
        self.acked = dict(acked or {})

    def ack(self, device: str, hlc: Hlc) -> bool:
        """Whether the ack advanced."""
        advanced = device not in self.acked or hlc > self.acked[device]
        if advanced:
            self.acked[device] = hlc
        return advanced

    def stable_frontier(self) -> Hlc | None:
        return min(self.acked.values(), default=None)


class Plan(NamedTuple):
    """The checkpoint to keep, the ops to keep after it, and what retention did."""

    frontier: Hlc
    as_of_ms: int
    checkpoint: Checkpoint
    retained: list[Op]
    dropped_ops: int
    dropped: dict[str, int]
    tombstoned: list[tuple[str, str]]


def plan(ops: Iterable[Op], acks: Acks, policy: Policy, as_of_ms: int | None = None) -> Plan:
    """Plan a compaction at the stable frontier. Raises CompactionError, ChainError, RetentionError."""
    ops = list(ops)
    verify_log(ops)
    frontier = acks.stable_frontier()
    if frontier is None:
        raise NothingAcked("nothing acknowledged")
    for device in sorted({op.device_id for op in ops} - acks.acked.keys()):
        raise UnackedDevice(device)
    below = [op for op in ops if op.hlc <= frontier]
    at = newest_timestamp(record_of(op) for op in below) if as_of_ms is None else as_of_ms
    exact = checkpoint_from_ops(below)
    trimmed = retain(exact.state, policy, at)
    checkpoint = make_checkpoint(exact.frontier, exact.scopes, trimmed.state)
    retained = [op for op in ops if op.hlc > frontier]
    return Plan(frontier, at, checkpoint, retained, len(below), trimmed.dropped, trimmed.tombstoned)
