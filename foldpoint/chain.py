"""Verification of logs and anchored tails (car-sync.md §5, §9.5).

ChainError                what verify_log refuses, first failure first
  IdMismatch  DeviceMismatch  DuplicateSeq  SeqGap  PrevMismatch  NonMonotonicHlc
  TruncatedChain          resume only
AnchorError
  BrokenAnchor  UnanchoredDevice
"""

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import ClassVar

from foldpoint.op import Op


class ChainError(Exception):
    """`fields` are the crate's fields of the variant, by name; for verify_log the message is its display text."""

    text: ClassVar[str]

    def __init__(self, **fields: str | int) -> None:
        super().__init__(self.text.format(**fields))
        self.fields = fields


class IdMismatch(ChainError):
    text = "op {op_id}: stored op_id does not match content"


class DeviceMismatch(ChainError):
    text = "op {op_id}: hlc.device_id != device_id"


class DuplicateSeq(ChainError):
    text = "device {device_id}: duplicate seq {seq}"


class SeqGap(ChainError):
    text = "device {device_id}: seq gap (expected {expected}, found {found})"


class PrevMismatch(ChainError):
    text = "op {op_id}: prev does not link to the preceding op"


class NonMonotonicHlc(ChainError):
    text = "op {op_id}: hlc not strictly increasing along device chain"


class TruncatedChain(ChainError):
    text = "device {device_id}: chain starts at seq {first_seq}"


class AnchorError(ChainError):
    pass


class BrokenAnchor(AnchorError):
    text = "device {device_id}: tail does not continue the checkpoint ({detail})"


class UnanchoredDevice(AnchorError):
    text = "device {device_id}: tail starts at seq {first_seq} and the checkpoint does not cover it"


def check_content(op: Op) -> None:
    """What one op must satisfy by itself. Raises IdMismatch, DeviceMismatch (§5.1–5.2)."""
    if op.computed_id() != op.op_id:
        raise IdMismatch(op_id=op.op_id)
    if op.hlc.device_id != op.device_id:
        raise DeviceMismatch(op_id=op.op_id)


def check_link(before: Op, op: Op) -> None:
    """Whether `op` follows `before` in a chain. Raises SeqGap, PrevMismatch, NonMonotonicHlc (§5.5–5.7)."""
    if op.seq != before.seq + 1:
        raise SeqGap(device_id=op.device_id, expected=before.seq + 1, found=op.seq)
    if op.prev != before.op_id:
        raise PrevMismatch(op_id=op.op_id)
    if op.hlc <= before.hlc:
        raise NonMonotonicHlc(op_id=op.op_id)


def chains(ops: Iterable[Op]) -> dict[str, list[Op]]:
    """Each device's ops by seq, devices in byte order."""
    by_device: dict[str, list[Op]] = defaultdict(list)
    for op in ops:
        by_device[op.device_id].append(op)
    return {device: sorted(by_device[device], key=lambda op: op.seq) for device in sorted(by_device)}


def verify_log(ops: Iterable[Op]) -> None:
    """Verify ops of any devices in any order, without duplicates. Raises the first ChainError (§5)."""
    ops = list(ops)
    seen: set[tuple[str, int]] = set()
    for op in ops:
        check_content(op)
        if (op.device_id, op.seq) in seen:
            raise DuplicateSeq(device_id=op.device_id, seq=op.seq)
        seen.add((op.device_id, op.seq))
    for chain in chains(ops).values():
        if chain[0].seq == 0 and chain[0].prev is not None:
            raise PrevMismatch(op_id=chain[0].op_id)
        for before, op in pairwise(chain):
            check_link(before, op)
