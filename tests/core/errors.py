"""Our exceptions in the shape of the vectors: the crate's error enum, by variant."""

from foldpoint.canonical import Json
from foldpoint.chain import AnchorError, ChainError
from foldpoint.checkpoint import AddressMismatch, CheckpointError


def as_variant(error: Exception) -> dict[str, Json]:
    if isinstance(error, ChainError):
        return {"variant": type(error).__name__, **error.fields}
    assert isinstance(error, CheckpointError)
    actual = "found" if isinstance(error, AddressMismatch) else "actual"
    return {"variant": type(error).__name__, "expected": error.expected, actual: error.actual}


def as_anchor_variant(error: Exception) -> dict[str, Json]:
    """The error of an anchored verification, where the crate wraps what a part of it refuses."""
    if isinstance(error, AnchorError):
        return as_variant(error)
    return {"variant": "Chain" if isinstance(error, ChainError) else "Checkpoint", "inner": as_variant(error)}
