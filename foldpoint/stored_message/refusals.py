"""Why a stored message, a context or a checkpoint is refused (stored-message.md §4)."""

from enum import StrEnum
from typing import ClassVar

from foldpoint.canonical import Unreadable


class Kind(StrEnum):
    """The class of a shape error."""

    SYNTAX = "syntax"
    MISSING_FIELD = "missing_field"
    UNKNOWN_FIELD = "unknown_field"
    DUPLICATE_FIELD = "duplicate_field"
    UNKNOWN_VARIANT = "unknown_variant"
    INVALID_TYPE = "invalid_type"
    INVALID_VALUE = "invalid_value"
    INVALID_LENGTH = "invalid_length"


class Refused(Unreadable):
    """A gate does not let this pass; `code` is the original kernel's."""

    code: ClassVar[str]


class Malformed(Refused):
    """The decode gate: the JSON is not the shape it should be."""

    code = "malformed_envelope"

    def __init__(self, kind: Kind, detail: str, path: str = "") -> None:
        super().__init__(detail, path)
        self.kind = kind


class Incompatible(Refused):
    """The assemble or the restore gate: well formed, but no context can hold it."""

    code = "checkpoint_incompatible"


class Corrupted(Refused):
    """A digest, a tail or the write-back of a checkpoint does not agree with the rest of it."""

    code = "checkpoint_corrupted"
