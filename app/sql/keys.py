"""How protocol strings of any length stand in an index."""

from functools import lru_cache
from hashlib import sha256

#: The longest string that stands for itself; a btree entry is limited to about 2.7 kB.
SHORT = 255
PREFIX = 224


def slot_key(text: str) -> bytes:
    """The string itself, or of a long one the first bytes and its hash: injective, and sorted by bytes
    except among strings that share their first 224 bytes, one of them long."""
    raw = text.encode()
    return raw if len(raw) <= SHORT else raw[:PREFIX] + sha256(raw).digest()


def is_short(key: bytes) -> bool:
    """Whether a slot key is the whole string."""
    return len(key) <= SHORT


@lru_cache(4096)
def stream_key(name: str) -> bytes:
    """Half a SHA-256 of a stream's or an agent's name: what the hot indexes carry."""
    return sha256(name.encode()).digest()[:16]


def raw_op_id(op_id: str) -> bytes:
    """The 16 bytes of a verified op id."""
    return bytes.fromhex(op_id[3:])


def op_id_text(raw: bytes) -> str:
    return "op-" + raw.hex()
