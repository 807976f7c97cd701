"""A device's own log: authoring and resuming (car-sync.md §4.7, §9.6)."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from foldpoint.canonical import Json
from foldpoint.chain import TruncatedChain, verify_log
from foldpoint.checkpoint import Checkpoint, verify_anchored
from foldpoint.hlc import Clock, Hlc
from foldpoint.op import Op, make_op


@dataclass(slots=True)
class DeviceLog:
    """Where a device's chain continues, and the clock that stamps it."""

    device_id: str
    next_seq: int = 0
    head: str | None = None
    clock: Clock = field(default_factory=Clock)

    def append(self, wall_now: int, scope: str, surface: str, payload: Json) -> Op:
        """Author the next op at this reading of the wall clock, in ms. Raises CounterExhausted."""
        hlc = self.clock.tick(wall_now, self.device_id)
        op = make_op(self.device_id, self.next_seq, self.head, hlc, scope, surface, payload)
        self.next_seq, self.head = op.seq + 1, op.op_id
        return op

    def observe(self, hlc: Hlc) -> None:
        """Let later ops of this device sort after a received stamp."""
        self.clock.observe(hlc)

    @classmethod
    def resume(cls, device_id: str, ops: Iterable[Op]) -> "DeviceLog":
        """Continue from a full log. Raises ChainError, TruncatedChain for a chain without its start."""
        ops = list(ops)
        verify_log(ops)
        log = cls(device_id)
        own = log._adopt(ops)
        if own and own[0].seq != 0:
            raise TruncatedChain(device_id=device_id, first_seq=own[0].seq)
        return log

    @classmethod
    def resume_anchored(cls, device_id: str, checkpoint: Checkpoint, tail: Iterable[Op]) -> "DeviceLog":
        """Continue from a checkpoint and the ops after it. Raises what verify_anchored raises."""
        tail = list(tail)
        verify_anchored(checkpoint, tail)
        log = cls(device_id)
        for entry in checkpoint.frontier.values():
            log.observe(entry.hlc)
        if device_id in checkpoint.frontier:
            log.next_seq, log.head = checkpoint.frontier[device_id].seq + 1, checkpoint.frontier[device_id].head
        log._adopt(tail)
        return log

    def _adopt(self, ops: list[Op]) -> list[Op]:
        for op in ops:
            self.observe(op.hlc)
        own = sorted((op for op in ops if op.device_id == self.device_id), key=lambda op: op.seq)
        if own:
            self.next_seq, self.head = own[-1].seq + 1, own[-1].op_id
        return own
