"""Records of one run, as one device writes them."""

from typing import Any

from foldpoint.canonical import canonical
from foldpoint.hlc import Hlc
from foldpoint.run_ledger.entry import entry_payload, seal_payload
from foldpoint.run_ledger.state import RunState
from foldpoint.run_ledger.transitions import apply
from foldpoint.run_ledger.wire import Event, RecordedEvent
from foldpoint.state import Record

RUN = "run-1"
DEVICE = "phone"


def event(name: str, **fields: Any) -> Event:
    return {"event": name, "run_id": RUN, **fields}


def context(*tokens: int, budget: int = 9) -> dict[str, Any]:
    fragments = [{"lane": "policy", "source": "s", "content": "x" * n, "estimated_tokens": n} for n in tokens]
    return {"token_budget": budget, "fragments": fragments}


STARTS = [event("run_started", agent_id=agent) for agent in ("ada", "bob")]


def replayed(ledger: list[RecordedEvent]) -> RunState:
    state = RunState()
    for record in ledger:
        apply(state, record)
    return state


def _turn(number: int) -> list[Event]:
    name = f"t{number}"
    output = {"role": "assistant", "content": "."}
    return [
        event("context_built", turn_id=name, context=context()),
        event("model_requested", turn_id=name, step=number, model="m"),
        event("model_responded", turn_id=name, step=number, output=output, proposed_calls=[], usage=None),
    ]


def _ledger(turns: int) -> list[Event]:
    return [STARTS[0], *(told for number in range(turns) for told in _turn(number))]


def recorded(wall_ms: int, seq: int, told: Event, at: int = 0) -> Record:
    payload = entry_payload(DEVICE, RecordedEvent(seq, at, told))
    return Record(Hlc(wall_ms, 0, DEVICE), f"op-{wall_ms}", canonical(payload))


def sealed(wall_ms: int, through_seq: int, *winners: str, epoch: int = 1) -> Record:
    payload = seal_payload(DEVICE, RUN, through_seq, winners, epoch)
    return Record(Hlc(wall_ms, 1, DEVICE), f"seal-{wall_ms}", canonical(payload))


def written(turns: int) -> list[Record]:
    return [recorded(seq, seq, told) for seq, told in enumerate(_ledger(turns))]


def id_of(record: Record) -> str:
    return str(record.value()["id"])


def called_turn(turn: str, step: int) -> list[Event]:
    """A turn up to the call of a tool."""
    output = {"role": "assistant", "content": ""}
    proposals = [{"tool": "x", "input": 1}]
    return [
        event("context_built", turn_id=turn, context=context()),
        event("model_requested", turn_id=turn, step=step, model="m"),
        event("model_responded", turn_id=turn, step=step, output=output, proposed_calls=proposals, usage=None),
        event("tool_call_proposed", turn_id=turn, call={"id": "c1", "tool": "x", "effect": "network", "input": 1}),
    ]
