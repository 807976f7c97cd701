"""Encryption envelopes, as a relay sees them (car-sync.md §13a.1–13a.2)."""

from foldpoint.canonical import Json, as_u64

ALGORITHM = "chacha20poly1305"


def is_envelope(payload: Json) -> bool:
    """Whether a payload is sealed. Values are not checked, and further keys may be there."""
    return isinstance(payload, dict) and payload.get("car_enc") == ALGORITHM and "nonce" in payload and "ct" in payload


def is_well_formed(payload: Json) -> bool:
    """Whether an envelope could open under some key (server.md §9); a `kid` of null is none (car-sync.md §1.9)."""
    if not isinstance(payload, dict):
        return False
    texts = isinstance(payload.get("nonce"), str) and isinstance(payload.get("ct"), str)
    return texts and (payload.get("kid") is None or as_u64(payload["kid"]) is not None)
