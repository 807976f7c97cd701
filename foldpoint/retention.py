"""Retention: which records of a state's logs stay, become stubs, or go (car-sync.md §10).

RetentionError
  EventStreamRetention    routing entries are replayed whole, so no rule may trim them
  IntentRetention         intents are never trimmed
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from foldpoint.canonical import U64_MAX, Json, Unreadable, canonical, clamp_u64
from foldpoint.hlc import Hlc
from foldpoint.op import integer
from foldpoint.state import Entries, Record, SyncState
from foldpoint.surfaces import conversation, intent, routing, run, trajectory

DAY_MS = 86_400_000


class RetentionError(Exception):
    pass


class EventStreamRetention(RetentionError):
    pass


class IntentRetention(RetentionError):
    pass


@dataclass(frozen=True, slots=True)
class KeepAll:
    def to_json(self) -> Json:
        return "keep_all"


@dataclass(frozen=True, slots=True)
class LastN:
    """Keep the n most recent."""

    n: int

    def to_json(self) -> Json:
        return {"last_n": {"n": self.n}}


@dataclass(frozen=True, slots=True)
class MaxAge:
    """Keep what is at most so old."""

    max_age_ms: int

    def to_json(self) -> Json:
        return {"max_age_ms": {"max_age_ms": self.max_age_ms}}


@dataclass(frozen=True, slots=True)
class PerAgentWithAge:
    """Keep the most recent of each agent, none too old; a bound of 0 is off."""

    max_per_agent: int
    max_age_ms: int

    def to_json(self) -> Json:
        return {"per_agent_with_age": {"max_per_agent": self.max_per_agent, "max_age_ms": self.max_age_ms}}


Rule = KeepAll | LastN | MaxAge | PerAgentWithAge
_RULES: dict[str, Any] = {"last_n": LastN, "max_age_ms": MaxAge, "per_agent_with_age": PerAgentWithAge}


@dataclass(frozen=True, slots=True)
class Policy:
    """A rule per surface tag, and one for every other log."""

    rules: Mapping[str, Rule] = field(default_factory=dict)
    default_rule: Rule = KeepAll()

    def rule(self, tag: str) -> Rule:
        return self.rules.get(tag, self.default_rule)

    def check(self, *, routed: bool) -> None:
        """Raises RetentionError if it would trim intents, or routing entries where there are any (§10.3)."""
        if self.rule(intent.SURFACE.name) != KeepAll():
            raise IntentRetention(intent.SURFACE.name)
        if routed and self.rule(routing.SURFACE.name) != KeepAll():
            raise EventStreamRetention(routing.SURFACE.name)

    def to_json(self) -> dict[str, Json]:
        rules = {tag: rule.to_json() for tag, rule in self.rules.items()}
        return {"rules": rules, "default_rule": self.default_rule.to_json()}


def default_policy(turns: int, trajectory_age_ms: int) -> Policy:
    """The crate's default: the last turns, 50 runs an agent for 30 days, trajectories by age (§10.4)."""
    kept: dict[str, Rule] = {name: KeepAll() for name in ("knowledge", "skill", "routing")}
    return Policy(
        {
            **kept,
            conversation.SURFACE.name: LastN(turns),
            run.SURFACE.name: PerAgentWithAge(50, 30 * DAY_MS),
            trajectory.SURFACE.name: MaxAge(trajectory_age_ms),
        }
    )


def read_policy(value: Json) -> Policy:
    """Read a policy's JSON form. Raises Unreadable."""
    if not isinstance(value, dict) or not isinstance(rules := value.get("rules"), dict):
        raise Unreadable("expected rules and a default_rule", "policy")
    return Policy(
        {tag: _read_rule(rule, f"rules.{tag}") for tag, rule in rules.items()},
        _read_rule(value.get("default_rule"), "default_rule"),
    )


def _read_rule(value: Json, path: str) -> Rule:
    if value == "keep_all":
        return KeepAll()
    if isinstance(value, dict) and len(value) == 1:
        ((name, bounds),) = value.items()
        if name in _RULES and isinstance(bounds, dict):
            fields = _RULES[name].__dataclass_fields__
            rule: Rule = _RULES[name](**{bound: integer(bounds, bound, U64_MAX, path + ".") for bound in fields})
            return rule
    raise Unreadable("expected a retention rule", path)


class Trimmed(NamedTuple):
    """A state after retention: how many records went from each log, and which became stubs.

    A log that lost every record stays, empty, as in the crate.
    """

    state: SyncState
    dropped: dict[str, int]
    tombstoned: list[tuple[str, str]]


def retain(state: SyncState, policy: Policy, as_of_ms: int) -> Trimmed:
    """Apply a policy to a state's logs. Raises RetentionError (§10.2, §10.3)."""
    policy.check(routed=bool(state.logs.get(routing.SURFACE.name)))
    logs: dict[str, Entries] = {}
    dropped: Counter[str] = Counter()
    tombstoned: list[tuple[str, str]] = []
    for tag, entries in state.logs.items():
        kept = dict(entries)
        facts = (fact for key, record in entries.items() if (fact := fact_of(key, record)))
        for key in doomed(facts, policy.rule(tag), as_of_ms):
            stub = stub_of(key, entries[key])
            if stub is None:
                del kept[key]
                dropped[tag] += 1
            else:
                kept[key] = stub
                tombstoned.append((tag, key))
        logs[tag] = kept
    return Trimmed(SyncState(logs, state.registries, state.intents), dict(dropped), sorted(tombstoned))


class Fact(NamedTuple):
    """What a rule asks of a live record, in the order of recency; `key` is whatever the caller knows it by."""

    recency: int
    hlc: Hlc
    op_id: str
    key: Any
    at: int | None
    agent: str


def fact_of(key: Any, record: Record) -> Fact | None:
    """The fact of a live record; None for a tombstone, which is carried and never counted."""
    payload = record.value()
    if conversation.is_tombstone(payload):
        return None
    at = _timestamp(payload)
    return Fact(U64_MAX if at is None else at, record.hlc, record.op_id, key, at, intent.agent_id(payload))


def doomed(facts: Iterable[Fact], rule: Rule, as_of_ms: int) -> list[Any]:
    """The keys of the records that a rule does not keep, out of all live ones of a surface."""
    if isinstance(rule, KeepAll):
        return []
    if isinstance(rule, MaxAge):
        return [fact.key for fact in facts if _is_older(fact.at, as_of_ms, rule.max_age_ms)]
    live = sorted(facts, key=lambda fact: fact[:3])
    if isinstance(rule, LastN):
        return [fact.key for fact in live[: max(len(live) - rule.n, 0)]]
    rank: Counter[str] = Counter()
    gone = []
    for fact in reversed(live):
        too_many = rule.max_per_agent and rank[fact.agent] >= rule.max_per_agent
        rank[fact.agent] += 1
        if too_many or (rule.max_age_ms and _is_older(fact.at, as_of_ms, rule.max_age_ms)):
            gone.append(fact.key)
    return gone


def _is_older(at: int | None, as_of_ms: int, max_age_ms: int) -> bool:
    return at is not None and max(0, as_of_ms - at) > max_age_ms


def stub_of(key: str, record: Record) -> Record | None:
    """What stays of a dropped record that has an entity id; None without one."""
    payload = record.value()
    name = key[3:] if key.startswith("id:") else payload.get("id") if isinstance(payload, dict) else None
    return record._replace(payload=canonical({"id": name, "tombstone": True})) if isinstance(name, str) else None


def timestamp(record: Record) -> int | None:
    """The payload's timestamp in ms; None if it has none, which counts as newest."""
    return _timestamp(record.value())


def _timestamp(payload: Json) -> int | None:
    return clamp_u64(payload.get("timestamp")) if isinstance(payload, dict) else None


def newest_timestamp(records: Iterable[Record]) -> int:
    """The default of `as_of_ms`: the highest timestamp, 0 without any."""
    return max((at for record in records if (at := timestamp(record)) is not None), default=0)
