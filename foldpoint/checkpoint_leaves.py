"""A stored checkpoint's canonical text, taken apart while it is read: a record at a time, never the whole."""

from typing import Any

import msgspec
import orjson

from foldpoint.hlc import Hlc
from foldpoint.splitting import Path
from foldpoint.state import AgentIntents, Entries, Record, SyncState
from foldpoint.surfaces import kind_of


def enters(path: Path) -> bool:
    """The objects that hold records, and those that hold these."""
    return path[0] == "state" and (len(path) <= 3 or (len(path) == 4 and path[1] == "intents"))


def put_leaf(state: SyncState, path: Path, text: str) -> None:
    """Put a leaf of a verified checkpoint where it belongs in the state; what is no part of it is passed over."""
    match path:
        case ("state", "logs", tag, key):
            state.logs.setdefault(tag, {})[key] = _record(text)
        case ("state", "registries", tag, key):
            state.registries.setdefault(tag, {})[key] = _record(text)
        case ("state", "intents", agent, "fencing_epoch"):
            _agent(state, agent).fencing_epoch = int(text)
        case ("state", "intents", agent, view, key):
            _view(_agent(state, agent), view)[key] = _record(text)


def _agent(state: SyncState, agent: str) -> AgentIntents:
    return state.intents.setdefault(agent, AgentIntents())


def _view(intents: AgentIntents, view: str) -> Entries:
    return intents.runs if view == "runs" else intents.committed_runs


class _Stamp(msgspec.Struct):
    wall_ms: int
    counter: int
    device_id: str


class _Record(msgspec.Struct):
    hlc: _Stamp
    op_id: str
    payload: msgspec.Raw


_decode = msgspec.json.Decoder(_Record).decode


def _record(text: str) -> Record:
    found = _decode(text)
    hlc = found.hlc
    return Record(Hlc(hlc.wall_ms, hlc.counter, hlc.device_id), found.op_id, bytes(found.payload))


def line_of(path: Path, text: str) -> bytes | None:
    """A leaf of the state as one line of NDJSON; None for any other leaf.

    `{"log", "key", "record"}`, `{"registry", "key", "record"}`, `{"agent", "fencing_epoch"}` or
    `{"agent", "view", "key", "record"}`.
    """
    match path:
        case ("state", "logs", tag, key):
            return _line({"log": tag, "key": key}, "record", text)
        case ("state", "registries", tag, key):
            return _line({"registry": kind_of(tag), "key": key}, "record", text)
        case ("state", "intents", agent, "fencing_epoch"):
            return _line({"agent": agent}, "fencing_epoch", text)
        case ("state", "intents", agent, view, key):
            return _line({"agent": agent, "view": view, "key": key}, "record", text)
    return None


def _line(place: dict[str, Any], name: str, text: str) -> bytes:
    return b'%b,"%b":%b}\n' % (orjson.dumps(place)[:-1], name.encode(), text.encode())
