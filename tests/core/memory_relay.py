"""A relay that holds rows in memory; every decision is foldpoint's (car-sync.md §11)."""

from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile

from foldpoint.checkpoint import Checkpoint
from foldpoint.frontier import Frontier
from foldpoint.hlc import Hlc
from foldpoint.op import Op
from foldpoint.relay import (
    Acknowledged,
    Chain,
    Duplicate,
    Refusal,
    RosterEntry,
    acknowledge,
    is_latest,
    judge,
    stable_frontier,
    truncated,
    unverified,
)


def is_collectable(op: Op, stable: Hlc | None, covered: int | None) -> bool:
    """Whether GC, which the server does in SQL, may drop an op whose whole chain before it is dropped (§11.8).

    `covered` is the highest seq of the device in the frontiers of all stored checkpoints.
    """
    return stable is not None and covered is not None and op.hlc <= stable and op.seq <= covered


def swept(entry: RosterEntry, now_ms: int, horizon_ms: int | None) -> RosterEntry:
    """The entry after anyone's contact: evicted if silent for longer than the horizon (§11.1)."""
    silent = horizon_ms is not None and now_ms - entry.last_seen_ms > horizon_ms
    return replace(entry, evicted=True) if silent else entry


class Refused(Exception):
    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.detail)
        self.refusal = refusal


class FrontierTruncated(Exception):
    def __init__(self, chain: Chain) -> None:
        super().__init__(f"ops of {chain.device_id} below {chain.dropped_below} are dropped")
        self.chain = chain


class CheckpointUnverified(Exception):
    def __init__(self, device_id: str, seq: int, detail: str) -> None:
        super().__init__(detail)
        self.device_id, self.seq, self.detail = device_id, seq, detail


@dataclass
class Rows:
    """What is stored of one chain; `dropped` is the last op that GC took."""

    chain: Chain
    ops: dict[int, Op] = field(default_factory=dict)
    dropped: Op | None = None

    @property
    def known(self) -> dict[int, str]:
        ops = [*self.ops.values(), *([self.dropped] if self.dropped else [])]
        return {op.seq: op.op_id for op in ops}


@dataclass
class MemoryRelay:
    horizon_ms: int | None = None
    entries: dict[str, RosterEntry] = field(default_factory=dict)
    rows: dict[str, Rows] = field(default_factory=dict)
    checkpoints: dict[str, Checkpoint] = field(default_factory=dict)
    latest: Checkpoint | None = None

    def register(self, device: str, now: int) -> RosterEntry:
        entry = self.entries.get(device, RosterEntry(device, now, now))
        self.entries[device] = replace(entry, last_seen_ms=now)
        self.entries = {name: swept(entry, now, self.horizon_ms) for name, entry in self.entries.items()}
        return self.entries[device]

    def push(self, device: str, ops: list[Op], now: int) -> tuple[int, int]:
        """How many were accepted, and how many were there already; the good prefix stays. Raises Refused."""
        self.register(device, now)
        accepted = deduped = 0
        for op in sorted(ops, key=lambda op: op.seq):
            rows = self.rows.get(device, Rows(Chain(device)))
            match judge(rows.chain, op, op.computed_id(), rows.known):
                case Refusal() as refusal:
                    raise Refused(refusal)
                case Duplicate():
                    deduped += 1
                case None:
                    self.rows[device] = rows
                    rows.ops[op.seq] = op
                    rows.chain = rows.chain.extended(op)
                    accepted += 1
        return accepted, deduped

    def pull(self, device: str, since: Frontier, now: int) -> list[Op]:
        """Raises FrontierTruncated for the first device whose needed ops are dropped."""
        self.register(device, now)
        for _, rows in sorted(self.rows.items()):
            if truncated(rows.chain, since):
                raise FrontierTruncated(rows.chain)
        ops = (op for rows in self.rows.values() for op in rows.ops.values())
        wanted = [op for op in ops if op.seq > since.get(op.device_id, -1)]
        return sorted(wanted, key=lambda op: (op.hlc, op.op_id))

    def ack(self, device: str, hlc: Hlc, now: int) -> Acknowledged:
        entry = self.register(device, now)
        others = [other for other in self.entries.values() if other.device_id != device]
        acknowledged = acknowledge(entry, others, hlc)
        self.entries[device] = acknowledged.entry
        return acknowledged

    @property
    def roster(self) -> list[RosterEntry]:
        return [self.entries[device] for device in sorted(self.entries)]

    @property
    def stable(self) -> Hlc | None:
        return stable_frontier(self.entries.values())

    def checkpoint_put(self, device: str, checkpoint: Checkpoint, now: int) -> bool:
        """Raises CheckpointError, CheckpointUnverified."""
        self.register(device, now)
        checkpoint.verify()
        for name, claim in sorted(checkpoint.frontier.items()):
            rows = self.rows.get(name)
            detail = unverified(rows.chain, claim, rows.known) if rows else unverified(None, claim, {})
            if detail is not None:
                raise CheckpointUnverified(name, claim.seq, detail)
        stored = checkpoint.checkpoint_hash not in self.checkpoints
        self.checkpoints.setdefault(checkpoint.checkpoint_hash, checkpoint)
        if is_latest(seqs(checkpoint), seqs(self.latest) if self.latest else None):
            self.latest = checkpoint
        return stored

    def gc(self) -> dict[str, int]:
        """How many ops each device lost."""
        dropped = {}
        for device, rows in self.rows.items():
            covered = max(
                (point.frontier[device].seq for point in self.checkpoints.values() if device in point.frontier),
                default=None,
            )
            gone = list(takewhile(partial(is_collectable, stable=self.stable, covered=covered), rows.ops.values()))
            if gone:
                dropped[device] = len(gone)
                rows.dropped = gone[-1]
                rows.ops = {seq: op for seq, op in rows.ops.items() if seq > rows.dropped.seq}
                rows.chain = rows.chain._replace(dropped_below=rows.dropped.seq + 1)
        return dropped


def seqs(checkpoint: Checkpoint) -> Frontier:
    return {device: entry.seq for device, entry in checkpoint.frontier.items()}
