"""SyncState: what a set of ops folds to, its text, its hash and its queries (car-sync.md §6, §8.5)."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple, TypeVar

import orjson

from foldpoint.canonical import U64_MAX, Json, Unreadable, canonical
from foldpoint.hlc import Hlc
from foldpoint.op import Op, integer, read_hlc, stable_key

T = TypeVar("T")


class Record(NamedTuple):
    """One folded entry; `payload` is canonical JSON text. The first two fields order records."""

    hlc: Hlc
    op_id: str
    payload: bytes

    def text(self) -> bytes:
        """The record's canonical JSON."""
        wall_ms, counter, device_id = self.hlc
        return record_text(wall_ms, counter, orjson.dumps(device_id), orjson.dumps(self.op_id), self.payload)

    def value(self) -> Any:
        """The payload as a JSON value."""
        return orjson.loads(self.payload)

    @property
    def stable_key(self) -> str:
        """The fold key of the record, unless it is of an event stream."""
        return stable_key(self.value(), self.payload)

    def to_json(self) -> dict[str, Json]:
        return {"op_id": self.op_id, "hlc": self.hlc.to_json(), "payload": self.value()}


def record_text(wall_ms: int, counter: int, device_id: bytes, op_id: bytes, payload: bytes) -> bytes:
    """The canonical JSON of a record, from the JSON texts of its parts."""
    return b'{"hlc":{"counter":%d,"device_id":%b,"wall_ms":%d},"op_id":%b,"payload":%b}' % (
        counter,
        device_id,
        wall_ms,
        op_id,
        payload,
    )


def record_of(op: Op) -> Record:
    return Record(op.hlc, op.op_id, op.payload_text)


Entries = dict[str, Record]


@dataclass(slots=True)
class AgentIntents:
    """One agent's leased tier (§8.3)."""

    fencing_epoch: int = 0
    runs: Entries = field(default_factory=dict)
    committed_runs: Entries = field(default_factory=dict)


@dataclass(slots=True)
class SyncState:
    """Records by surface tag and fold key, and intents by agent. Built by the fold, then only read."""

    logs: dict[str, Entries] = field(default_factory=dict)
    registries: dict[str, Entries] = field(default_factory=dict)
    intents: dict[str, AgentIntents] = field(default_factory=dict)

    def log_entries(self, tag: str) -> list[Record]:
        """The records of a log in (hlc, op_id) order; empty for registries and unknown tags (§6.10)."""
        return sorted(self.logs.get(tag, {}).values())

    def replay(self, tag: str, initial: T, step: Callable[[T, Record], T]) -> T:
        value = initial
        for record in self.log_entries(tag):
            value = step(value, record)
        return value

    def intent(self, agent: str, run: str) -> Record | None:
        """Who holds a run now; not an idempotency check."""
        return self.intents[agent].runs.get("id:" + run) if agent in self.intents else None

    def committed_run(self, agent: str, run: str) -> Record | None:
        """The idempotency oracle."""
        return self.intents[agent].committed_runs.get("id:" + run) if agent in self.intents else None

    def committed_run_ids(self, agent: str) -> list[str]:
        keys = self.intents[agent].committed_runs if agent in self.intents else {}
        return sorted(key[3:] for key in keys if key.startswith("id:"))

    def fencing_epoch(self, agent: str) -> int | None:
        return self.intents[agent].fencing_epoch if agent in self.intents else None

    def pieces(self) -> Iterator[bytes]:
        """The canonical JSON of the state, in pieces (§6.9)."""
        yield b'{"intents":{'
        for lead, agent in _separated(self.intents):
            intents = self.intents[agent]
            yield b'%b%b:{"committed_runs":{' % (lead, orjson.dumps(agent))
            yield from entries_pieces(intents.committed_runs)
            yield b'},"fencing_epoch":%d,"runs":{' % intents.fencing_epoch
            yield from entries_pieces(intents.runs)
            yield b"}}"
        for name, group in ((b'},"logs":{', self.logs), (b'},"registries":{', self.registries)):
            yield name
            for lead, tag in _separated(group):
                yield b"%b%b:{" % (lead, orjson.dumps(tag))
                yield from entries_pieces(group[tag])
                yield b"}"
        yield b"}}"

    def text(self) -> bytes:
        return b"".join(self.pieces())


def _separated(group: Mapping[str, object]) -> Iterator[tuple[bytes, str]]:
    for i, key in enumerate(sorted(group)):
        yield b"," if i else b"", key


def entries_pieces(entries: Entries) -> Iterator[bytes]:
    """The members of an object of records, in key order."""
    for lead, key in _separated(entries):
        yield b"%b%b:%b" % (lead, orjson.dumps(key), entries[key].text())


def state_hash(state: SyncState) -> str:
    return hash_pieces("state-", state.pieces())


def hash_pieces(prefix: str, pieces: Iterator[bytes]) -> str:
    digest = sha256()
    for piece in pieces:
        digest.update(piece)
    return address(prefix, digest.hexdigest())


def address(prefix: str, hexdigest: str) -> str:
    """A content address: the prefix and half a SHA-256 (§6.9, §9.3)."""
    return prefix + hexdigest[:32]


def read_state(value: Json) -> SyncState:
    """Read a SyncState's JSON form; `intents` may be missing. Raises Unreadable (§6.1)."""
    state = _object(value, "state")
    for name in ("logs", "registries"):
        if name not in state:
            raise Unreadable("missing", "state." + name)
    return SyncState(
        {
            tag: _read_entries(entries, f"state.logs.{tag}")
            for tag, entries in _object(state["logs"], "state.logs").items()
        },
        {
            tag: _read_entries(entries, f"state.registries.{tag}")
            for tag, entries in _object(state["registries"], "state.registries").items()
        },
        {
            agent: _read_intents(intents, f"state.intents.{agent}")
            for agent, intents in _object(state.get("intents", {}), "state.intents").items()
        },
    )


def _object(value: Json, path: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise Unreadable("expected an object", path)


def _read_intents(value: Json, path: str) -> AgentIntents:
    intents = _object(value, path)
    return AgentIntents(
        integer(intents, "fencing_epoch", U64_MAX, path + "."),
        _read_entries(intents.get("runs"), path + ".runs"),
        _read_entries(intents.get("committed_runs"), path + ".committed_runs"),
    )


def _read_entries(value: Json, path: str) -> Entries:
    return {key: _read_record(record, f"{path}.{key}") for key, record in _object(value, path).items()}


def _read_record(value: Json, path: str) -> Record:
    record = _object(value, path)
    if not isinstance(op_id := record.get("op_id"), str) or "payload" not in record:
        raise Unreadable("expected op_id, hlc and payload", path)
    return Record(read_hlc(record.get("hlc"), path + ".hlc."), op_id, canonical(record["payload"]))
