"""Hypothesis strategies: what a few devices write into one session, each having seen some of the others."""

from itertools import accumulate
from typing import Any, NamedTuple

from hypothesis import strategies as st

from foldpoint.device_log import DeviceLog
from foldpoint.journal.records import Stamp
from foldpoint.op import Op
from tests.fixtures.journal_vectors import append

DEVICES = ("a", "b", "c")

#: Often a few ops whose meaning depends on what was seen, on few enough messages and entries to collide.
JOURNAL_OPS: tuple[dict[str, Any], ...] = (
    *({"op": "message", "message": {"supercode_turn": 1, "ts": "", "role": "user"}},) * 5,
    *({"op": "rewind", "to": to} for to in (0, 1, 2, 3)),
    *({"op": "unrewind"},) * 3,
    *({"op": "enqueue", "queue": "steer", "text": "go"},) * 3,
    {"op": "enqueue", "queue": "follow_up", "text": "then"},
    *({"op": "dequeue", "queue": "steer", "count": count} for count in (1, 1, 2)),
    {"op": "dequeue", "queue": "follow_up", "count": 1},
    *({"op": "checkpoint", "messages": messages} for messages in (1, 4, 9)),
    {"op": "rename", "from": "x", "to": "y"},
    {"op": "plan", "steps": [{"step": "x", "status": "pending"}]},
    {"op": "usage", "record": {"turn": 0, "model": "m", "cost_usd": 0.1}},
    {"op": "upgrade", "from_version": 0, "to_version": 2, "original": "s.v0.jsonl"},
    {"op": "model_change", "record": {"turn": 0, "from_model": "m", "to_model": "n"}},
    {"op": "no such op"},
)


class Step(NamedTuple):
    """One device's next op, before which it may hear of another device's. `wild`: a `seen` out of the blue."""

    writer: int
    op: int
    hears: int
    wall_now: int
    how: int
    wild: tuple[int, int, int]


_SEEN = 7
_STEPS = len(DEVICES) * len(JOURNAL_OPS) * 5 * 13 * 8 * _SEEN**3


def _step(number: int) -> Step:
    """A step as one number, which is drawn much faster than its parts."""
    number, writer = divmod(number, len(DEVICES))
    number, op = divmod(number, len(JOURNAL_OPS))
    number, hears = divmod(number, 5)
    number, wall_now = divmod(number, 13)
    number, how = divmod(number, 8)
    wild = (number % _SEEN, number // _SEEN % _SEEN, number // _SEEN**2)
    return Step(writer, op, hears, wall_now, how, wild)


def long_history(length: int, seed: int) -> list[Step]:
    """Always the same steps for a seed."""
    numbers = accumulate(range(length), lambda number, _: (number * 25214903917 + 11) % 2**48, initial=seed)
    return [_step((number >> 12) % _STEPS) for number in numbers][1:]


def steps(devices: int = len(DEVICES)) -> st.SearchStrategy[list[Step]]:
    drawn = st.integers(0, _STEPS - 1).map(_step)
    return st.lists(drawn.map(lambda step: step._replace(writer=step.writer % devices)), min_size=5, max_size=16)


class Writing:
    """Devices that write, with what each has heard of the others."""

    def __init__(self) -> None:
        self.logs = {name: DeviceLog(name) for name in DEVICES}
        self.known: dict[str, dict[str, Stamp]] = {name: {} for name in DEVICES}
        self.ops: list[Op] = []

    def hear(self, writer: str, other: str) -> None:
        """Pull all that another device has written or heard of."""
        for device, stamp in self.known[other].items():
            self.known[writer][device] = max(stamp, self.known[writer].get(device, stamp))
        for op in self.ops:
            if op.hlc[:2] <= self.known[writer].get(op.device_id, (-1, 0)):
                self.logs[writer].observe(op.hlc)

    def write(self, writer: str, entry: Any, wall_now: int, seen: dict[str, Stamp] | None) -> None:
        op = append(self.logs[writer], wall_now, entry, len(self.ops), seen)
        self.known[writer][writer] = op.hlc[:2]
        self.ops.append(op)


def written(history: list[Step], *, honest: bool = False) -> list[Op]:
    """The ops of a history. All say what their device has heard of, or some say nothing or whatever."""
    writing = Writing()
    for step in history:
        writer = DEVICES[step.writer]
        if step.hears < len(DEVICES):
            writing.hear(writer, DEVICES[step.hears])
        seen: dict[str, Stamp] | None = dict(writing.known[writer])
        if step.how == 0 and not honest:
            seen = None
        elif step.how in (1, 2) and not honest:
            seen = {device: (2 * wall, step.how) for device, wall in zip(DEVICES, step.wild, strict=True) if wall}
        writing.write(writer, JOURNAL_OPS[step.op], step.wall_now, seen)
    return writing.ops
