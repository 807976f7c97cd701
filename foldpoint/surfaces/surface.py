"""What a surface is."""

from dataclasses import dataclass
from enum import Enum


class Tier(Enum):
    """How the records of a surface compete for one key (car-sync.md §6.3–6.5)."""

    #: The record with the smaller (hlc, op_id) stays.
    GROW_ONLY = "grow-only"
    #: The record with the larger (hlc, op_id) stays.
    REGISTRY = "registry"
    #: Intents: rank, epoch and the agent's fence decide.
    LEASED = "leased"


@dataclass(frozen=True, slots=True)
class Surface:
    """One part of the state an op belongs to.

    `number` is how storage names it and never changes; on an event stream every op is its own record.
    """

    name: str
    number: int
    tier: Tier
    event_stream: bool = False

    @property
    def keyed(self) -> bool:
        return self.tier is not Tier.LEASED and not self.event_stream
