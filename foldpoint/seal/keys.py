"""From what a person knows to the keys of an audience (car-sync.md §13a.4). Keys and masters are 32 bytes."""

from hashlib import sha256

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from foldpoint.seal.box import KEY_BYTES

_SALT = b"car-sync/v1/salt"
_AUDIENCE = b"car-sync/v1/aead/"
_EXCHANGE = b"car-sync/v1/x25519-identity/v1/user:"
_SIGNING = b"car-sync/v1/ed25519-identity/v1/user:"
_ARGON2_SALT = b"car-sync/v1/argon2-salt/user:"


def audience_of(scope: str) -> str:
    """`personal` or `org:<org>`, from the tag of an op's scope."""
    return "personal" if scope == "personal" else org_audience(scope.removeprefix("shared:"))


def org_audience(org: str) -> str:
    return "org:" + org


def audience_key(master: bytes, audience: str) -> bytes:
    """The key of one audience; the master is a person's, or the key that an org shares at one epoch."""
    return _derived(master, _AUDIENCE + audience.encode())


def passphrase_master(passphrase: str, user: str) -> bytes:
    """Stretched by Argon2id: takes 64 MiB and a good part of a second, by design."""
    salt = sha256(_ARGON2_SALT + user.encode()).digest()[:16]
    argon2 = Argon2id(salt=salt, length=KEY_BYTES, iterations=3, lanes=1, memory_cost=64 * 1024)
    return argon2.derive(passphrase.encode())


def issued_master(secret: bytes, user: str) -> bytes:
    """From a secret that a login service issued, which is strong already."""
    return audience_key(secret, "user/" + user)


def exchange_identity(master: bytes, user: str) -> X25519PrivateKey:
    """What opens the org keys that are wrapped for a user; its public key is published."""
    return X25519PrivateKey.from_private_bytes(_derived(master, _EXCHANGE + user.encode()))


def signing_identity(master: bytes, user: str) -> Ed25519PrivateKey:
    """What a granter signs with."""
    return Ed25519PrivateKey.from_private_bytes(_derived(master, _SIGNING + user.encode()))


def _derived(master: bytes, info: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=_SALT, info=info).derive(master)
