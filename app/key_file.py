"""The key file, under which keys of sealed scopes are kept in the database: 32 random bytes in hex (server.md §9)."""

import os
import secrets
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Self

from foldpoint.seal.box import KEY_BYTES, NONCE_BYTES, decrypt, encrypt

#: Its name in the data directory of an embedded database.
NAME = "scope-keys.key"
_FINGERPRINT = b"foldpoint.key_file/1\0"
_BOUND_TO = b"foldpoint.scope_key/1\0"


class KeyFileError(ValueError):
    """The file cannot serve. The message never holds what is in it."""


@dataclass(frozen=True, slots=True)
class KeyFile:
    key: bytes = field(repr=False)

    @property
    def key_id(self) -> bytes:
        """What tells this key from another, and gives nothing of it away."""
        return sha256(_FINGERPRINT + self.key).digest()[:16]

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """The key in a file, None if there is no such file. Raises KeyFileError for what is no key, or not private."""
        try:
            with path.open("rb") as file:
                mode, text = os.fstat(file.fileno()).st_mode, file.read(1_000)
        except FileNotFoundError:
            return None
        if mode & 0o077:
            raise KeyFileError(f"others may read the key file {path}: chmod 600 it")
        try:
            key = bytes.fromhex(text.decode("ascii"))
        except ValueError:
            key = b""
        if len(key) != KEY_BYTES:
            raise KeyFileError(f"the key file {path} must hold {KEY_BYTES} bytes in hex: openssl rand -hex 32")
        return cls(key)

    @classmethod
    def make(cls, path: Path) -> Self:
        """A new key in a new file, on disk when this returns."""
        made = cls(secrets.token_bytes(KEY_BYTES))
        unfinished = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:  # noqa: PTH123
            file.write(made.key.hex() + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(unfinished, path)
        finally:
            unfinished.unlink()
        directory = os.open(path.parent, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)
        return made

    def encrypt(self, text: bytes, scope: int) -> bytes:
        """A keyring's text as it is stored, for one scope alone."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        return nonce + encrypt(self.key, nonce, text, _bound_to(scope))

    def decrypt(self, sealed: bytes, scope: int) -> bytes:
        """Raises SealError."""
        return decrypt(self.key, sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], _bound_to(scope))


def _bound_to(scope: int) -> bytes:
    return _BOUND_TO + str(scope).encode()
