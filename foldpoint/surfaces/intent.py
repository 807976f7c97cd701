"""Intents, read leniently as the fold reads them (car-sync.md §8.2)."""

from foldpoint.canonical import Json, as_u64
from foldpoint.surfaces.surface import Surface, Tier

SURFACE = Surface("intent", 9, Tier.LEASED)


def agent_id(payload: Json) -> str:
    name = payload.get("agent_id") if isinstance(payload, dict) else None
    return name if isinstance(name, str) else ""


def epoch(payload: Json) -> int:
    """The fencing epoch; anything but an integer in u64 reads as 0."""
    return (as_u64(payload.get("epoch")) or 0) if isinstance(payload, dict) else 0


def _status(payload: Json) -> Json:
    return payload.get("status") if isinstance(payload, dict) else None


def is_committed(payload: Json) -> bool:
    return _status(payload) == "committed"


def is_failed(payload: Json) -> bool:
    return _status(payload) == "failed"


def is_terminal(payload: Json) -> bool:
    return is_committed(payload) or is_failed(payload)
