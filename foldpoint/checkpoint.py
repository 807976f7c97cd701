"""Checkpoints: a state at a frontier, content-addressed (car-sync.md §9.2–9.7).

CheckpointError
  HashMismatch        the state does not hash to state_hash
  ContentMismatch     the whole does not hash to checkpoint_hash
  AddressMismatch     a file's name is not the hash in it
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from foldpoint.canonical import Json, Repeats, Unreadable, canonical, read_json, repeats_keys
from foldpoint.chain import BrokenAnchor, UnanchoredDevice, chains, verify_log
from foldpoint.fold import fold, fold_onto
from foldpoint.frontier import Covered, covered_by, read_covered
from foldpoint.op import STAMP, Op
from foldpoint.state import SyncState, hash_pieces, read_state, state_hash

SUFFIX = ".checkpoint.json"


class CheckpointError(Exception):
    def __init__(self, expected: str, actual: str) -> None:
        super().__init__(f"{type(self).__name__}: {expected} is claimed, {actual} is so")
        self.expected, self.actual = expected, actual


class HashMismatch(CheckpointError):
    pass


class ContentMismatch(CheckpointError):
    pass


class AddressMismatch(CheckpointError):
    pass


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`scopes` are the sorted scope tags of the covered ops; the hashes are as claimed until verified."""

    frontier: dict[str, Covered]
    scopes: list[str]
    state_hash: str
    checkpoint_hash: str
    state: SyncState

    def verify(self) -> None:
        """Integrity only. Raises HashMismatch, then ContentMismatch (§9.4)."""
        if (actual := state_hash(self.state)) != self.state_hash:
            raise HashMismatch(self.state_hash, actual)
        actual = checkpoint_hash(self.frontier, self.scopes, self.state_hash, self.state.pieces())
        if actual != self.checkpoint_hash:
            raise ContentMismatch(self.checkpoint_hash, actual)

    def verify_address(self, file_name: str) -> None:
        """Raises AddressMismatch unless the file is named after the hash."""
        if file_name != self.checkpoint_hash + SUFFIX:
            raise AddressMismatch(self.checkpoint_hash, file_name.removesuffix(SUFFIX))

    def pieces(self) -> Iterator[bytes]:
        """The canonical JSON of the whole record."""
        return checkpoint_pieces(self.frontier, self.scopes, self.state_hash, self.state.pieces(), self.checkpoint_hash)


def checkpoint_pieces(
    frontier: dict[str, Covered],
    scopes: list[str],
    state_hash: str,
    state: Iterable[bytes],
    checkpoint_hash: str | None = None,
) -> Iterator[bytes]:
    """The canonical JSON of a checkpoint, without its own hash if that is None (§9.3)."""
    yield b"{"
    if checkpoint_hash is not None:
        yield b'"checkpoint_hash":%b,' % orjson.dumps(checkpoint_hash)
    yield b'"frontier":%b' % canonical({device: entry.to_json() for device, entry in frontier.items()})
    yield b',"scopes":%b,"state":' % orjson.dumps(scopes)
    yield from state
    yield b',"state_hash":%b}' % orjson.dumps(state_hash)


def checkpoint_hash(frontier: dict[str, Covered], scopes: list[str], state_hash: str, state: Iterable[bytes]) -> str:
    return hash_pieces("ckpt-", checkpoint_pieces(frontier, scopes, state_hash, state))


def make_checkpoint(frontier: dict[str, Covered], scopes: list[str], state: SyncState) -> Checkpoint:
    """A checkpoint of this content, with its hashes."""
    digest = state_hash(state)
    return Checkpoint(frontier, scopes, digest, checkpoint_hash(frontier, scopes, digest, state.pieces()), state)


def checkpoint_from_ops(ops: Iterable[Op]) -> Checkpoint:
    """The exact checkpoint of a whole log. Raises ChainError."""
    ops = list(ops)
    verify_log(ops)
    return make_checkpoint(covered_by(ops), sorted({op.scope for op in ops}), fold(ops))


def checkpoint_onto(base: Checkpoint, tail: Iterable[Op]) -> Checkpoint:
    """The exact checkpoint of an exact base and the ops after it (§9.7)."""
    tail = list(tail)
    scopes = sorted({*base.scopes, *(op.scope for op in tail)})
    return make_checkpoint({**base.frontier, **covered_by(tail)}, scopes, fold_onto(base.state, tail))


def verify_anchored(checkpoint: Checkpoint, tail: Iterable[Op]) -> None:
    """Whether a tail continues a checkpoint. Raises CheckpointError, ChainError or AnchorError (§9.5)."""
    checkpoint.verify()
    tail = list(tail)
    verify_log(tail)
    for device, chain in chains(tail).items():
        first, entry = chain[0], checkpoint.frontier.get(device)
        if entry is None:
            if first.seq != 0:
                raise UnanchoredDevice(device_id=device, first_seq=first.seq)
        elif first.seq != entry.seq + 1:
            raise BrokenAnchor(
                device_id=device, detail=f"first retained seq {first.seq} does not continue frontier seq {entry.seq}"
            )
        elif first.prev != entry.head:
            raise BrokenAnchor(
                device_id=device, detail=f"first retained op's prev does not link to frontier head {entry.head}"
            )
        elif first.hlc <= entry.hlc:
            raise BrokenAnchor(device_id=device, detail="first retained op's hlc does not advance past the frontier")


def read_checkpoint(value: Json) -> Checkpoint:
    """Read a checkpoint's JSON form; it is not verified. Raises Unreadable."""
    if not isinstance(value, dict):
        raise Unreadable("expected a checkpoint")
    scopes, digest, address = value.get("scopes"), value.get("state_hash"), value.get("checkpoint_hash")
    if not isinstance(scopes, list) or not all(isinstance(tag, str) for tag in scopes):
        raise Unreadable("expected a list of scope tags", "scopes")
    if not isinstance(digest, str) or not isinstance(address, str):
        raise Unreadable("expected a string", "checkpoint_hash" if isinstance(digest, str) else "state_hash")
    return Checkpoint(read_covered(value.get("frontier")), scopes, digest, address, read_state(value.get("state")))


def read_checkpoint_text(text: bytes) -> Checkpoint:
    """Read a checkpoint's text strictly; it is not verified. Raises Unreadable.

    No field of a record in it may come twice; of maps and payloads the last of equal keys stays (§1.7).
    """
    value = read_json(text)
    checkpoint = read_checkpoint(value)
    if repeats_keys(text, value):
        for record, fields, path in _records(Repeats.read(text)):
            record.refuse(fields, path)
    return checkpoint


_FIELDS = ("frontier", "scopes", "state_hash", "checkpoint_hash", "state")
_ENTRY = ("seq", "hlc", "head")
_STATE = ("logs", "registries", "intents")
_AGENT = ("fencing_epoch", "runs", "committed_runs")
_RECORD = ("hlc", "op_id", "payload")


def _records(checkpoint: Any) -> Iterator[tuple[Repeats, Collection[str], str]]:
    """The typed records in a readable checkpoint with their fields, and what is put before a field's name."""
    yield checkpoint, _FIELDS, ""
    for device, entry in checkpoint["frontier"].items():
        yield entry, _ENTRY, f"frontier.{device}."
        yield entry["hlc"], STAMP, f"frontier.{device}.hlc."
    state = checkpoint["state"]
    yield state, _STATE, "state."
    groups = [(f"state.{name}.{tag}", state[name][tag]) for name in ("logs", "registries") for tag in state[name]]
    for agent, intents in state.get("intents", {}).items():
        yield intents, _AGENT, f"state.intents.{agent}."
        groups += [(f"state.intents.{agent}.{view}", intents[view]) for view in ("runs", "committed_runs")]
    for path, entries in groups:
        for key, record in entries.items():
            yield record, _RECORD, f"{path}.{key}."
            yield record["hlc"], STAMP, f"{path}.{key}.hlc."
