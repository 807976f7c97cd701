"""The wire form of recorded events (run-ledger.md §2, §3): a table of readers, one per type."""

from typing import Any, NamedTuple

from foldpoint.canonical import Json, canonical
from foldpoint.run_ledger.reading import (
    Reader,
    free,
    identifier,
    list_of,
    nullable,
    object_of,
    one_of,
    string,
    tagged,
    u32,
    u64,
)

#: The object tagged by its key `event`; every event has a `run_id`.
Event = dict[str, Any]


class RecordedEvent(NamedTuple):
    """One record of a ledger. `occurred_at_ms` is Unix time by the host's clock, which nothing checks."""

    seq: int
    occurred_at_ms: int
    event: Event

    @property
    def run_id(self) -> str:
        run_id: str = self.event["run_id"]
        return run_id

    @property
    def name(self) -> str:
        name: str = self.event["event"]
        return name

    def to_json(self) -> dict[str, Json]:
        return self._asdict()

    def text(self) -> bytes:
        return canonical(self.to_json())


def read_record(value: Json) -> RecordedEvent:
    """Read a RecordedEvent out of JSON. Raises Undecodable."""
    return RecordedEvent(**_RECORD(value))


def _allow(_: Json) -> dict[str, Any]:
    """The crate accepts anything beside `"decision":"allow"`, and loses it (§3)."""
    return {}


FRAGMENT = object_of(
    {
        "lane": one_of(
            "system_contract",
            "current_task",
            "tool_schemas",
            "recent_turns",
            "retrieved_context",
            "artifact_summary",
            "policy",
        ),
        "source": string,
        "content": string,
        "estimated_tokens": u32,
    }
)
CONTEXT_PACK = object_of({"token_budget": u32, "fragments": list_of(FRAGMENT)})
MESSAGE = object_of({"role": one_of("system", "user", "assistant", "tool"), "content": string})
USAGE = object_of({"input_tokens": u32, "output_tokens": u32})
PROPOSAL = object_of({"tool": identifier, "input": free})
CALL = object_of(
    {
        "id": identifier,
        "tool": identifier,
        "effect": one_of("read_only", "workspace_write", "network", "external_side_effect", "secret_access"),
        "input": free,
    }
)
_REASONED = object_of({"reason": string})
DECISION = tagged("decision", {"allow": _allow, "require_approval": _REASONED, "deny": _REASONED})
RESULT = object_of(
    {
        "call_id": identifier,
        "summary": string,
        "data": free,
        "artifacts": list_of(identifier),
        "visibility": one_of("model", "user", "both"),
    }
)


def _event(optional: frozenset[str] = frozenset(), /, **fields: Reader) -> Reader:
    return object_of({"run_id": identifier, **fields}, optional)


_responded = _event(
    frozenset(("served_model", "usage")),
    turn_id=identifier,
    step=u32,
    output=MESSAGE,
    proposed_calls=list_of(PROPOSAL),
    served_model=nullable(identifier),
    usage=nullable(USAGE),
)


def _read_responded(value: Json) -> dict[str, Any]:
    """An unknown usage is written as null, an unknown model is left out."""
    event = {"usage": None, **_responded(value)}
    if event.get("served_model") is None:
        event.pop("served_model", None)
    return event


EVENT = tagged(
    "event",
    {
        "run_started": _event(agent_id=identifier),
        "context_built": _event(turn_id=identifier, context=CONTEXT_PACK),
        "context_compacted": _event(
            turn_id=identifier,
            estimated_tokens_before=u32,
            estimated_tokens_after=u32,
            dropped_turn_start=u64,
            dropped_turn_end_exclusive=u64,
        ),
        "model_requested": _event(turn_id=identifier, step=u32, model=identifier),
        "model_failed": _event(turn_id=identifier, step=u32, reason=string),
        "model_responded": _read_responded,
        "tool_proposals_rejected": _event(turn_id=identifier, reason=string),
        "tool_call_proposed": _event(turn_id=identifier, call=CALL),
        "policy_evaluated": _event(call_id=identifier, decision=DECISION),
        "approval_granted": _event(call_id=identifier, actor_id=identifier),
        "approval_denied": _event(call_id=identifier, actor_id=identifier, reason=string),
        "tool_started": _event(call_id=identifier),
        "tool_finished": _event(result=RESULT),
        "tool_failed": _event(call_id=identifier, reason=string),
        "run_finished": _event(),
        "run_failed": _event(reason=string),
    },
)
_RECORD = object_of({"seq": u64, "occurred_at_ms": u64, "event": EVENT})
