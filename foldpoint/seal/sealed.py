"""Envelopes: reading, opening and sealing them (car-sync.md §13a.1, §13a.4; server.md §9)."""

from dataclasses import dataclass, field
from typing import NamedTuple, Self

from foldpoint.canonical import Json, Unreadable, as_u64, canonical, read_json
from foldpoint.envelope import ALGORITHM
from foldpoint.seal.box import NONCE_BYTES, decrypt, encrypt, read_hex, sized
from foldpoint.seal.failure import Reason, SealError


class Envelope(NamedTuple):
    """An envelope's own fields; `nonce` and `ct` may still be no hex."""

    nonce: str
    ct: str
    kid: int | None = None

    def to_json(self) -> dict[str, Json]:
        """What the state folds of one that does not open."""
        fields: dict[str, Json] = {"car_enc": ALGORITHM, "nonce": self.nonce, "ct": self.ct}
        return fields if self.kid is None else {**fields, "kid": self.kid}


@dataclass(frozen=True, slots=True)
class AudienceKey:
    """One key of an audience, and what its envelopes carry and are bound to: an org's key its epoch, others nothing."""

    key: bytes = field(repr=False)
    kid: int | None = None
    bound_to: bytes = b""

    @classmethod
    def of_org(cls, key: bytes, audience: str, epoch: int) -> Self:
        names = sized(ALGORITHM.encode()) + sized(audience.encode())
        return cls(key, epoch, b"car-sync:payload:v2\0" + names + epoch.to_bytes(8, "little"))


def read_envelope(payload: Json) -> Envelope:
    """An envelope without its further keys; a `kid` of null is none (§1.9). Raises SealError."""
    if not isinstance(payload, dict) or payload.get("car_enc") != ALGORITHM:
        raise SealError(Reason.MALFORMED, f"not an envelope of {ALGORITHM}")
    nonce, ct, kid = payload.get("nonce"), payload.get("ct"), payload.get("kid")
    if not isinstance(nonce, str) or not isinstance(ct, str):
        raise SealError(Reason.MALFORMED, "nonce and ct must be strings")
    if kid is not None and as_u64(kid) is None:
        raise SealError(Reason.MALFORMED, "kid must be an integer in u64")
    return Envelope(nonce, ct, as_u64(kid))


def open_envelope(envelope: Envelope, key: AudienceKey) -> Json:
    """The payload inside. Raises SealError."""
    nonce = read_hex(envelope.nonce, "nonce", NONCE_BYTES)
    plaintext = decrypt(key.key, nonce, read_hex(envelope.ct, "ct"), key.bound_to)
    try:
        return read_json(plaintext)
    except Unreadable:
        raise SealError(Reason.UNREADABLE, "it opens, but is not JSON") from None


def seal_payload(payload: Json, key: AudienceKey, nonce: bytes) -> Envelope:
    """Seal a payload. The nonce is 12 random bytes, fresh for every call."""
    ciphertext = encrypt(key.key, nonce, canonical(payload), key.bound_to)
    return Envelope(nonce.hex(), ciphertext.hex(), key.kid)
