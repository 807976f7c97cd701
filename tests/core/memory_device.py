"""A device that holds its ops in memory and syncs as car-sync's pump does (car-sync.md §11.11)."""

from dataclasses import dataclass, field
from typing import NamedTuple

from foldpoint.canonical import Json
from foldpoint.chain import verify_log
from foldpoint.checkpoint import Checkpoint, checkpoint_from_ops, verify_anchored
from foldpoint.device_log import DeviceLog
from foldpoint.fold import fold_onto
from foldpoint.frontier import Frontier, frontier_of
from foldpoint.hlc import Hlc
from foldpoint.op import Op
from foldpoint.state import SyncState
from tests.core.memory_relay import MemoryRelay, seqs


class Pumped(NamedTuple):
    pushed: int
    push_deduped: int
    folded: int
    acked: Hlc


@dataclass
class MemoryDevice:
    name: str
    relay: MemoryRelay
    base: Checkpoint | None = None
    ops: list[Op] = field(default_factory=list)
    pushed: int = 0
    log: DeviceLog = field(init=False)

    def __post_init__(self) -> None:
        self.log = DeviceLog(self.name)

    def write(self, now: int, payload: Json) -> None:
        self.ops.append(self.log.append(now, "personal", "knowledge", payload))

    @property
    def frontier(self) -> Frontier:
        return {**(seqs(self.base) if self.base else {}), **frontier_of(self.ops)}

    @property
    def state(self) -> SyncState:
        return fold_onto(self.base.state if self.base else SyncState(), self.ops)

    def pump(self, now: int) -> Pumped:
        """Push, pull, acknowledge. Raises FrontierTruncated, and then has pushed all the same."""
        own = [op for op in self.ops if op.device_id == self.name]
        accepted, deduped = self.relay.push(self.name, own[self.pushed :], now)
        pulled = self.relay.pull(self.name, self.frontier, now)
        self.pushed = len(own)
        new = [op for op in pulled if op.device_id != self.name]
        self.adopt(self.base, [*self.ops, *new])
        acked = max([op.hlc for op in self.ops] + ([c.hlc for c in self.base.frontier.values()] if self.base else []))
        self.relay.ack(self.name, acked, now)
        return Pumped(accepted, deduped, len(new), acked)

    def rebase(self, now: int) -> None:
        """Start over from the relay's checkpoint, with what it does not cover."""
        base = self.relay.latest
        assert base is not None
        pulled = self.relay.pull(self.name, seqs(base), now)
        merged = {op.op_id: op for op in [*self.ops, *pulled] if op.seq > seqs(base).get(op.device_id, -1)}
        self.adopt(base, list(merged.values()))

    def adopt(self, base: Checkpoint | None, ops: list[Op]) -> None:
        """Hold these ops from now on, if they verify."""
        if base is None:
            verify_log(ops)
            self.log = DeviceLog.resume(self.name, ops)
        else:
            verify_anchored(base, ops)
            self.log = DeviceLog.resume_anchored(self.name, base, ops)
        self.base, self.ops = base, ops

    def publish_checkpoint(self, now: int) -> Checkpoint:
        """Give the relay the fold of what every active device acknowledged."""
        stable = self.relay.stable
        assert stable is not None
        checkpoint = checkpoint_from_ops(op for op in self.ops if op.hlc <= stable)
        self.relay.checkpoint_put(self.name, checkpoint, now)
        return checkpoint
