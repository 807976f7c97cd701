"""Why sealing, opening or unwrapping failed."""

from enum import StrEnum


class Reason(StrEnum):
    #: It has not the shape that it must have; no key can help.
    MALFORMED = "malformed"
    #: No key of its audience, or of its epoch, is held.
    NO_KEY = "no_key"
    #: It fails under the key that is held: another key sealed it, or a byte has changed.
    WRONG_KEY = "wrong_key"
    #: It opens, and what is inside is not what it must be.
    UNREADABLE = "unreadable"
    #: No trusted granter signed it.
    UNTRUSTED = "untrusted"


class SealError(Exception):
    """The message never holds a key, a passphrase or any plaintext."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
