"""Frontiers: how far each device's chain is held or covered (car-sync.md §9.1, §9.8)."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from foldpoint.canonical import U64_MAX, Json, Unreadable
from foldpoint.hlc import Hlc
from foldpoint.op import Op, integer, read_hlc

#: A device's id, or its number.
K = TypeVar("K", str, int)

#: The highest seq held of each device; a missing device holds nothing.
Frontier = dict[str, int]


class Covered(NamedTuple):
    """The highest op of one device that a checkpoint covers."""

    seq: int
    hlc: Hlc
    head: str

    def to_json(self) -> dict[str, Json]:
        return {"seq": self.seq, "hlc": self.hlc.to_json(), "head": self.head}


def frontier_of(ops: Iterable[Op]) -> Frontier:
    frontier: Frontier = {}
    for op in ops:
        frontier[op.device_id] = max(op.seq, frontier.get(op.device_id, 0))
    return frontier


def covered_by(ops: Iterable[Op]) -> dict[str, Covered]:
    """The frontier of a checkpoint of these ops (§9.2)."""
    covered: dict[str, Covered] = {}
    for op in ops:
        if op.device_id not in covered or covered[op.device_id].seq < op.seq:
            covered[op.device_id] = Covered(op.seq, op.hlc, op.op_id)
    return covered


def dominates(one: Mapping[K, int], other: Mapping[K, int]) -> bool:
    """Whether `one` covers all that `other` covers; equal frontiers dominate each other (§9.8)."""
    return all(device in one and one[device] >= seq for device, seq in other.items())


def join(one: Mapping[K, int], other: Mapping[K, int]) -> dict[K, int]:
    """The smallest frontier that covers both."""
    return {device: max(one.get(device, -1), other.get(device, -1)) for device in one.keys() | other.keys()}


def read_frontier(value: Json) -> Frontier:
    """A frontier's JSON form. Raises Unreadable."""
    if not isinstance(value, dict):
        raise Unreadable("expected an object of device to seq")
    return {device: integer(value, device, U64_MAX) for device in value}


def read_covered(value: Json) -> dict[str, Covered]:
    """A checkpoint's frontier in JSON form. Raises Unreadable."""
    if not isinstance(value, dict):
        raise Unreadable("expected an object", "frontier")
    return {device: _read_entry(entry, f"frontier.{device}") for device, entry in value.items()}


def _read_entry(value: Json, path: str) -> Covered:
    if not isinstance(value, dict) or not isinstance(head := value.get("head"), str):
        raise Unreadable("expected seq, hlc and head", path)
    return Covered(integer(value, "seq", U64_MAX, path + "."), read_hlc(value.get("hlc"), path + ".hlc."), head)
