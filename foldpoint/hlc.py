"""Hybrid logical clock (car-sync.md §2)."""

from dataclasses import dataclass
from typing import NamedTuple

U32_MAX = 2**32 - 1


class Hlc(NamedTuple):
    """One stamp. Tuples compare as the protocol orders: numbers, then the id's bytes (§2.2)."""

    wall_ms: int
    counter: int
    device_id: str

    def to_json(self) -> dict[str, int | str]:
        return {"wall_ms": self.wall_ms, "counter": self.counter, "device_id": self.device_id}


class CounterExhausted(OverflowError):
    """The counter is full and the wall clock has not advanced."""


@dataclass(slots=True)
class Clock:
    """The greatest (wall_ms, counter) issued or witnessed (§2.3)."""

    wall_ms: int = 0
    counter: int = 0

    def tick(self, wall_now: int, device_id: str) -> Hlc:
        """The next stamp, above everything issued or witnessed. Raises CounterExhausted."""
        if wall_now > self.wall_ms:
            self.wall_ms, self.counter = wall_now, 0
        elif self.counter == U32_MAX:
            raise CounterExhausted(f"counter full at {self.wall_ms} ms")
        else:
            self.counter += 1
        return Hlc(self.wall_ms, self.counter, device_id)

    def observe(self, remote: Hlc) -> None:
        self.wall_ms, self.counter = max((self.wall_ms, self.counter), remote[:2])
