"""What changed between two states, record by record."""

from collections.abc import Iterator
from typing import NamedTuple

import orjson

from foldpoint.canonical import Json
from foldpoint.state import AgentIntents, Entries, Record, SyncState
from foldpoint.surfaces import kind_of

#: Where a record is: `{"log"}`, `{"registry"}`, or `{"agent", "view"}` with view `runs` or `committed_runs`.
Place = dict[str, str]
NONE = AgentIntents()


class Change(NamedTuple):
    """A record that one state has and the other has not, or has otherwise."""

    place: Place
    key: str
    before: Record | None
    after: Record | None

    @property
    def where(self) -> str:
        return ", ".join(f"{what} {name!r}" for what, name in self.place.items())

    @property
    def kind(self) -> str:
        """`added`, `changed` or `gone`."""
        return "added" if self.before is None else "gone" if self.after is None else "changed"

    def to_json(self) -> dict[str, Json]:
        """With `record`, or `before` and `after` if both are there."""
        where = {**self.place, "key": self.key}
        if self.before and self.after:
            return {**where, "before": self.before.to_json(), "after": self.after.to_json()}
        record = self.before or self.after
        assert record is not None
        return {**where, "record": record.to_json()}


class FenceChange(NamedTuple):
    """An agent's fence; None where the state does not know the agent."""

    agent_id: str
    before: int | None
    after: int | None


def changes(before: SyncState, after: SyncState) -> Iterator[Change]:
    """Every record that differs, place by place, by key in byte order."""
    for place, old, new in _groups(before, after):
        for key in sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key)):
            yield Change(place, key, old.get(key), new.get(key))


def fence_changes(before: SyncState, after: SyncState) -> Iterator[FenceChange]:
    for agent in sorted(before.intents.keys() | after.intents.keys()):
        change = FenceChange(agent, before.fencing_epoch(agent), after.fencing_epoch(agent))
        if change.before != change.after:
            yield change


def _groups(before: SyncState, after: SyncState) -> Iterator[tuple[Place, Entries, Entries]]:
    for tag in sorted(before.logs.keys() | after.logs.keys()):
        yield {"log": tag}, before.logs.get(tag, {}), after.logs.get(tag, {})
    for tag in sorted(before.registries.keys() | after.registries.keys()):
        yield {"registry": kind_of(tag)}, before.registries.get(tag, {}), after.registries.get(tag, {})
    for agent in sorted(before.intents.keys() | after.intents.keys()):
        old, new = before.intents.get(agent, NONE), after.intents.get(agent, NONE)
        yield {"agent": agent, "view": "runs"}, old.runs, new.runs
        yield {"agent": agent, "view": "committed_runs"}, old.committed_runs, new.committed_runs


def difference_members(before: SyncState, after: SyncState) -> Iterator[bytes]:
    """The JSON members `added`, `changed`, `gone`, each a list of records, and `fences`, in pieces."""
    found: dict[str, list[bytes]] = {"added": [], "changed": [], "gone": [], "fences": []}
    for change in changes(before, after):
        found[change.kind].append(orjson.dumps(change.to_json()))
    found["fences"] = [orjson.dumps(change._asdict()) for change in fence_changes(before, after)]
    for lead, (name, texts) in zip((b"", b",", b",", b","), found.items(), strict=True):
        yield b'%b"%b":[' % (lead, name.encode())
        for number, text in enumerate(texts):
            yield b"," + text if number else text
        yield b"]"
