"""An org's shared key, wrapped for one member and signed by a granter (car-sync.md §13b).

The wrapping key comes from X25519 between a key of this wrap alone and the member's; HKDF binds it to org, epoch,
member and both public keys, and the granter signs all of that with the envelope. The fields have the crate's names.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from foldpoint.canonical import U64_MAX, Json, Unreadable, canonical
from foldpoint.op import integer
from foldpoint.seal.box import KEY_BYTES, read_hex, sized
from foldpoint.seal.failure import Reason, SealError
from foldpoint.seal.keys import audience_key
from foldpoint.seal.sealed import AudienceKey, open_envelope, read_envelope, seal_payload
from foldpoint.seal.signature import SIGNATURE_BYTES, is_signed

ALGORITHM = "org-key-wrap/v2"
_ORG = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class WrappedOrgKey:
    """A wrap as the directory holds it. Recipient and publisher are labels: what is signed decides."""

    car_wrap: str
    org: str
    epoch: int
    recipient: str
    publisher: str
    ephemeral_pub: str
    recipient_pub: str
    envelope: Json
    signature: str

    def to_json(self) -> dict[str, Json]:
        return asdict(self)


class Grant(NamedTuple):
    """Who gives an org's key of which epoch to whom; users by their account ids."""

    org: str
    epoch: int
    recipient: str
    publisher: str


def read_wrapped(value: Json) -> WrappedOrgKey:
    """Read a wrap; nothing of it is verified. Raises Unreadable with the path."""
    if not isinstance(value, dict):
        raise Unreadable("expected a wrapped org key")
    read: dict[str, Any] = {"epoch": integer(value, "epoch", U64_MAX)}
    for name in (field.name for field in fields(WrappedOrgKey) if field.name != "epoch"):
        if name not in value:
            raise Unreadable("missing", name)
        if name != "envelope" and not isinstance(value[name], str):
            raise Unreadable("expected a string", name)
        read[name] = value[name]
    return WrappedOrgKey(**read)


def wrap_org_key(
    org_key: bytes,
    grant: Grant,
    recipient_key: bytes,
    *,
    signer: Ed25519PrivateKey,
    ephemeral: X25519PrivateKey,
    nonce: bytes,
) -> WrappedOrgKey:
    """Wrap for the holder of an X25519 public key. Raises SealError; `ephemeral` and `nonce` serve for one wrap."""
    _check_grant(grant)
    if len(org_key) != KEY_BYTES:
        raise SealError(Reason.MALFORMED, f"an org's key has {KEY_BYTES} bytes")
    ends = ephemeral.public_key().public_bytes_raw(), recipient_key
    key = _wrap_key(ephemeral, recipient_key, grant, ends)
    envelope = seal_payload({"k_org": org_key.hex()}, key, nonce).to_json()
    signature = signer.sign(_signed_text(grant, ends, envelope))
    names = ALGORITHM, grant.org, grant.epoch, grant.recipient, grant.publisher
    return WrappedOrgKey(*names, ends[0].hex(), ends[1].hex(), envelope, signature.hex())


def unwrap_org_key(wrapped: WrappedOrgKey, identity: X25519PrivateKey, user: str, trusted: Iterable[bytes]) -> bytes:
    """The org's key, if one of the `trusted` Ed25519 public keys signed it for this user. Raises SealError."""
    if wrapped.car_wrap != ALGORITHM:
        raise SealError(Reason.MALFORMED, f"not a wrap of {ALGORITHM}")
    grant = Grant(wrapped.org, wrapped.epoch, user, wrapped.publisher)
    _check_grant(grant)
    ephemeral_key = read_hex(wrapped.ephemeral_pub, "ephemeral_pub", KEY_BYTES)
    ends = ephemeral_key, read_hex(wrapped.recipient_pub, "recipient_pub", KEY_BYTES)
    signature = read_hex(wrapped.signature, "signature", SIGNATURE_BYTES)
    text = _signed_text(grant, ends, wrapped.envelope)
    if not any(is_signed(text, signature, key) for key in trusted):
        raise SealError(Reason.UNTRUSTED, "no trusted granter signed this for this user")
    opened = open_envelope(read_envelope(wrapped.envelope), _wrap_key(identity, ephemeral_key, grant, ends))
    if not isinstance(opened, dict) or not isinstance(org_key := opened.get("k_org"), str):
        raise SealError(Reason.UNREADABLE, "it opens, but holds no org key")
    return read_hex(org_key, "k_org", KEY_BYTES)


def org_keys_of(
    wraps: Iterable[WrappedOrgKey], org: str, identity: X25519PrivateKey, user: str, trusted: Sequence[bytes]
) -> dict[int, bytes]:
    """The org's key at every epoch that a wrap gives this user; a wrap that does not unwrap is passed over."""
    keys: dict[int, bytes] = {}
    for wrapped in wraps:
        if wrapped.org != org or wrapped.epoch in keys:
            continue
        try:
            keys[wrapped.epoch] = unwrap_org_key(wrapped, identity, user, trusted)
        except SealError:
            continue
    return keys


def _check_grant(grant: Grant) -> None:
    if not _ORG.fullmatch(grant.org):
        raise SealError(Reason.MALFORMED, "an org with keys is named by [A-Za-z0-9._-]+")
    if not 0 <= grant.epoch <= U64_MAX:
        raise SealError(Reason.MALFORMED, "an epoch is in u64")


#: The public keys of the wrap and of the member.
_Ends = tuple[bytes, bytes]


def _wrap_key(own: X25519PrivateKey, other: bytes, grant: Grant, ends: _Ends) -> AudienceKey:
    try:
        shared = own.exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError:
        raise SealError(Reason.MALFORMED, "not a public key of X25519 that anybody holds") from None
    org, recipient = _counted(grant.org), _counted(grant.recipient)
    info = f"org-key-wrap/v1|org={org}|epoch={grant.epoch}|recipient={recipient}|E={ends[0].hex()}|P={ends[1].hex()}"
    return AudienceKey(audience_key(shared, info))


def _counted(text: str) -> str:
    return f"{len(text.encode())}:{text}"


def _signed_text(grant: Grant, ends: _Ends, envelope: Json) -> bytes:
    head = sized(ALGORITHM.encode()) + sized(grant.org.encode()) + grant.epoch.to_bytes(8, "little")
    tail = (grant.recipient.encode(), grant.publisher.encode(), *ends, canonical(envelope))
    return head + b"".join(map(sized, tail))
