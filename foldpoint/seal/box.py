"""ChaCha20-Poly1305, and bytes as texts and texts as bytes, the way the crate does it (car-sync.md §13a.1)."""

from binascii import unhexlify

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from foldpoint.seal.failure import Reason, SealError

KEY_BYTES = 32
NONCE_BYTES = 12


def read_hex(text: str, what: str, length: int | None = None) -> bytes:
    """The bytes of hex `text`, exactly `length` of them if that is given. Raises SealError; `what` names the text.

    The crate reads each pair of digits as a number, which may begin with a plus sign.
    """
    try:
        value = unhexlify(text if "+" in text[1::2] else text.replace("+", "0"))
    except ValueError:
        raise SealError(Reason.MALFORMED, f"{what} is not hex") from None
    if length is not None and len(value) != length:
        raise SealError(Reason.MALFORMED, f"{what} has {len(value)} bytes, not {length}")
    return value


def sized(text: bytes) -> bytes:
    """`text` after its length in 64 bits, little end first, so that no two lists of texts look alike."""
    return len(text).to_bytes(8, "little") + text


def encrypt(key: bytes, nonce: bytes, plaintext: bytes, bound_to: bytes = b"") -> bytes:
    """Ciphertext and tag. A nonce of 12 bytes serves once per key; only the same `bound_to` opens it again."""
    return ChaCha20Poly1305(key).encrypt(nonce, plaintext, bound_to)


def decrypt(key: bytes, nonce: bytes, ciphertext: bytes, bound_to: bytes = b"") -> bytes:
    """What `encrypt` was given. Raises SealError for another key or any change."""
    try:
        return ChaCha20Poly1305(key).decrypt(nonce, ciphertext, bound_to)
    except InvalidTag:
        raise SealError(Reason.WRONG_KEY, "it does not open under this key") from None
