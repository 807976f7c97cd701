"""Sealed payloads: their keys, and opening and sealing them (car-sync.md §13a, §13b; server.md §9).

keys      from a passphrase or an issued secret to a master, and from that to the key of an audience
sealed    one envelope under one key
keyring   the keys that a scope's owner gave, and which of them opens what
opening   what the state folds of a sealed op
wraps     an org's shared key, wrapped for its members

Nonces, ephemeral keys and everything else that must be random are arguments.
"""

from foldpoint.seal.failure import Reason, SealError
from foldpoint.seal.keyring import Keyring
from foldpoint.seal.opening import Opening, Outcome, opened_payload
from foldpoint.seal.sealed import AudienceKey, Envelope, open_envelope, read_envelope, seal_payload

__all__ = [
    "AudienceKey",
    "Envelope",
    "Keyring",
    "Opening",
    "Outcome",
    "Reason",
    "SealError",
    "open_envelope",
    "opened_payload",
    "read_envelope",
    "seal_payload",
]
