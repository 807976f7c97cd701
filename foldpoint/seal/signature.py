"""A granter's signature, as strict as the crate's (car-sync.md §13b)."""

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

KEY_BYTES = 32
SIGNATURE_BYTES = 64

_P = 2**255 - 19
_ORDER_EIGHT = int.from_bytes(
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little"
)
#: The y of the eight points whose order divides 8: under such a key anybody can sign.
_SMALL_ORDER = frozenset((0, 1, _P - 1, _ORDER_EIGHT, _P - _ORDER_EIGHT))


def is_signed(message: bytes, signature: bytes, key: bytes) -> bool:
    """Whether the holder of an Ed25519 public key signed a message; never under a key that is no secret's."""
    if len(key) != KEY_BYTES or len(signature) != SIGNATURE_BYTES or _is_weak(key) or _is_weak(signature[:KEY_BYTES]):
        return False
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except InvalidSignature:
        return False
    return True


def _is_weak(point: bytes) -> bool:
    y = int.from_bytes(point, "little") & (2**255 - 1)
    return y % _P in _SMALL_ORDER
