"""Where a run stands after a prefix of its ledger, and what its host does next (run-ledger.md §4, §5, §10)."""

from collections import ChainMap
from collections.abc import MutableMapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from foldpoint.canonical import Json
from foldpoint.run_ledger.wire import RecordedEvent

#: `{"phase": name, …}` with the fields of §5.
Phase = dict[str, Any]

#: Ordered by nothing; a mapping, because a ChainMap of it is extended without copying it.
_Ids = MutableMapping[str, None]

TERMINAL = frozenset(("finished", "failed"))

#: What the host does in a phase, and the fields that say to what.
_COMMANDS = {
    "ready_to_request_model": ("request_model", ("turn_id", "step", "context")),
    "ready_to_execute_tool": ("execute_tool", ("call",)),
}


class Step(NamedTuple):
    """What one legal event changes: the phase, the ids it uses up, and the gate, which every other event opens."""

    phase: Phase
    turn: str | None = None
    call: str | None = None
    gate: str | None = None
    responded: bool = False


@dataclass(slots=True)
class RunState:
    """The state after `next_seq` records. `agent_id` is who runs it, from `run_started`; the crate does not keep it."""

    run_id: str | None = None
    agent_id: str | None = None
    next_seq: int = 0
    phase: Phase = field(default_factory=lambda: {"phase": "not_started"})
    pending_compaction_turn: str | None = None
    next_model_step: int = 0
    used_turns: _Ids = field(default_factory=dict)
    used_calls: _Ids = field(default_factory=dict)

    @property
    def terminal(self) -> bool:
        return self.phase["phase"] in TERMINAL

    @property
    def command(self) -> dict[str, Json] | None:
        """The I/O that the host does next; None to wait, to decide, or at the end."""
        name = self.phase["phase"]
        if name == "awaiting_approval":
            return {"command": "await_approval", "call_id": self.phase["call"]["id"], "reason": self.phase["reason"]}
        if name not in _COMMANDS:
            return None
        command, fields = _COMMANDS[name]
        return {"command": command, **{name: self.phase[name] for name in fields}}

    def take(self, record: RecordedEvent, step: Step) -> None:
        """Apply what `transitions.decide` allowed in this state."""
        if record.name == "run_started":
            self.run_id, self.agent_id = record.run_id, record.event["agent_id"]
        self.next_seq += 1
        self.phase = step.phase
        self.pending_compaction_turn = step.gate
        self.next_model_step += step.responded
        if step.turn is not None:
            self.used_turns[step.turn] = None
        if step.call is not None:
            self.used_calls[step.call] = None

    def copy(self) -> "RunState":
        return replace(self, used_turns=dict(self.used_turns), used_calls=dict(self.used_calls))

    def continued(self) -> "RunState":
        """As a copy, at no cost, while this one does not change."""
        return replace(self, used_turns=ChainMap({}, self.used_turns), used_calls=ChainMap({}, self.used_calls))

    def to_json(self) -> dict[str, Json]:
        """What the crate shows of a state (§11)."""
        return {
            "run_id": self.run_id,
            "next_seq": self.next_seq,
            "phase": self.phase,
            "pending_compaction_turn": self.pending_compaction_turn,
        }

    def checkpoint(self) -> dict[str, Json]:
        """All of the state, so that `read_checkpoint` refuses reused ids too (§12)."""
        return {
            **self.to_json(),
            "agent_id": self.agent_id,
            "next_model_step": self.next_model_step,
            "used_turns": [*sorted(self.used_turns)],
            "used_calls": [*sorted(self.used_calls)],
        }


def read_checkpoint(value: Any) -> RunState:
    """The state that wrote this `checkpoint`."""
    used = {name: dict.fromkeys(value[name]) for name in ("used_turns", "used_calls")}
    return RunState(**{**value, **used})
