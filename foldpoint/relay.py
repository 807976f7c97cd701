"""The relay's rules as decisions; the server applies them to its rows (car-sync.md §11)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from foldpoint.canonical import Json
from foldpoint.frontier import Covered, K, dominates
from foldpoint.hlc import Hlc
from foldpoint.op import Op


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an op or a call is refused: a stable code (server.md §12), a sentence, and the facts behind it."""

    code: str
    detail: str
    facts: Mapping[str, Json]


class Chain(NamedTuple):
    """What is held of one device. `head` outlives the ops: after a full GC it is the dropped head."""

    device_id: str | None
    head: Covered | None = None
    dropped_below: int = 0

    @property
    def next_seq(self) -> int:
        return 0 if self.head is None else self.head.seq + 1

    def extended(self, op: Op) -> "Chain":
        return Chain(op.device_id, Covered(op.seq, op.hlc, op.op_id), self.dropped_below)


class Duplicate(NamedTuple):
    """The op is held already, or below the floor, where nothing can be compared any more."""

    seq: int


def judge(chain: Chain, op: Op, computed_id: str, held: Mapping[int, str]) -> Refusal | Duplicate | None:
    """Whether a device's op may join its chain; None accepts it (§11.2).

    The chain must be bound to a device. `computed_id` is `op.computed_id()`; `held` gives the op_id at each held
    seq that the op could meet. Nothing but the order of these checks decides which refusal is reported.
    """
    if op.device_id != chain.device_id:
        return Refusal(
            "foreign_ops",
            f"device {chain.device_id} pushed an op emitted by {op.device_id}: a device pushes only its own chain",
            {"device_id": chain.device_id, "op_device": op.device_id, "seq": op.seq},
        )
    if computed_id != op.op_id:
        return _broken(op, "stored op_id does not match content")
    if op.hlc.device_id != op.device_id:
        return _broken(op, "hlc.device_id != device_id")
    if op.seq < chain.dropped_below:
        return Duplicate(op.seq)
    if op.seq < chain.next_seq:
        return Duplicate(op.seq) if held[op.seq] == op.op_id else _fork(op, held[op.seq])
    return _judge_next(chain, op)


def continues(before: Op, op: Op, computed_id: str) -> bool:
    """Whether `judge` accepts an op because the one accepted just before it is the one that it follows."""
    return (
        op.seq == before.seq + 1
        and op.prev == before.op_id
        and op.op_id == computed_id
        and op.hlc > before.hlc
        and before.device_id == op.device_id == op.hlc.device_id
    )


def _judge_next(chain: Chain, op: Op) -> Refusal | None:
    if op.seq != chain.next_seq:
        return Refusal(
            "gap",
            f"seq gap: {chain.next_seq} is next, {op.seq} was pushed; push contiguously",
            {"device_id": op.device_id, "expected": chain.next_seq, "found": op.seq},
        )
    if chain.head is None:
        return None if op.prev is None else _broken(op, "seq 0 must have no prev")
    if op.prev != chain.head.head:
        return _broken(op, f"prev does not link the relay-held head {chain.head.head}")
    if op.hlc <= chain.head.hlc:
        return _broken(op, "hlc does not advance past the relay-held head")
    return None


def _broken(op: Op, detail: str) -> Refusal:
    facts: dict[str, Json] = {"device_id": op.device_id, "seq": op.seq, "op_id": _named(op)}
    return Refusal("chain_broken", f"op {_named(op)}: {detail}", facts)


def _named(op: Op) -> str:
    """What a refusal calls an op whose id is not verified: it may be of any length."""
    return op.op_id[:64]


def _fork(op: Op, held: str) -> Refusal:
    return Refusal(
        "chain_fork",
        f"a different op already holds {op.device_id} seq {op.seq}: device chain fork",
        {"device_id": op.device_id, "seq": op.seq, "stored_op_id": held, "op_id": op.op_id, "prev": op.prev},
    )


def truncated(chain: Chain, since: Mapping[str, int]) -> bool:
    """Whether a pull from this frontier needs ops of the chain that are dropped (§11.3)."""
    held = since.get(chain.device_id, -1) if chain.device_id is not None else -1
    return held + 1 < chain.dropped_below


def unverified(chain: Chain | None, claim: Covered, held: Mapping[int, str]) -> str | None:
    """Why a checkpoint's frontier does not match the chain it claims to cover; None if it does (§11.6).

    `held` gives the op_id at each held seq and at the last dropped one; below that nothing can be compared.
    """
    if chain is None:
        return "relay holds no chain for this device"
    if claim.seq in held:
        return None if held[claim.seq] == claim.head else "frontier head does not match the relay-held op at this seq"
    if claim.seq < chain.dropped_below:
        return None
    return "relay holds no op at the claimed frontier seq (claims coverage beyond its chain head)"


@dataclass(frozen=True, slots=True)
class RosterEntry:
    """One device that ever made contact."""

    device_id: str
    added_at_ms: int
    last_seen_ms: int
    acked: Hlc | None = None
    evicted: bool = False

    def to_json(self) -> dict[str, Json]:
        return {
            "device_id": self.device_id,
            "added_at": Hlc(self.added_at_ms, 0, self.device_id).to_json(),
            "last_seen_ms": self.last_seen_ms,
            "acked": self.acked and self.acked.to_json(),
            "status": "evicted" if self.evicted else "active",
        }


class Acknowledged(NamedTuple):
    entry: RosterEntry
    advanced: bool
    reinstated: bool


def acknowledge(entry: RosterEntry, others: Iterable[RosterEntry], hlc: Hlc) -> Acknowledged:
    """Take a device's ack: monotone, and unchecked otherwise; enough of it reinstates the device (§11.4)."""
    advanced = entry.acked is None or hlc > entry.acked
    acked = hlc if advanced else entry.acked
    assert acked is not None
    reinstated = False
    if entry.evicted:
        oldest = stable_frontier(others)
        reinstated = oldest is None or acked >= oldest
    return Acknowledged(replace(entry, acked=acked, evicted=entry.evicted and not reinstated), advanced, reinstated)


def stable_frontier(roster: Iterable[RosterEntry]) -> Hlc | None:
    """The smallest ack of the active devices; None without any, or if one never acked (§11.5)."""
    acks = [entry.acked for entry in roster if not entry.evicted]
    known = [ack for ack in acks if ack is not None]
    return min(known) if known and len(known) == len(acks) else None


def holders(roster: Iterable[RosterEntry]) -> list[RosterEntry]:
    """The active devices that hold the stable frontier where it is: those that never acked, else the slowest."""
    active = [entry for entry in roster if not entry.evicted]
    silent = [entry for entry in active if entry.acked is None]
    stable = stable_frontier(active)
    return silent or [entry for entry in active if entry.acked == stable]


def is_latest(candidate: Mapping[K, int], latest: Mapping[K, int] | None) -> bool:
    """Whether a stored checkpoint's frontier takes the latest pointer over; `latest` is another's (§11.6)."""
    return latest is None or dominates(candidate, latest)
