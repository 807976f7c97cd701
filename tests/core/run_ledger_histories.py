"""Histories of one run: what careless devices and executors record of it, with forks, late stamps and seals."""

from functools import cache
from itertools import chain

from hypothesis import strategies as st

from foldpoint.canonical import Json, canonical, read_json
from foldpoint.hlc import Hlc
from foldpoint.projection import author_of, payload_id
from foldpoint.run_ledger.entry import entry_payload, seal_payload
from foldpoint.run_ledger.state import RunState, read_checkpoint
from foldpoint.run_ledger.transitions import apply, refusal
from foldpoint.run_ledger.wire import Event, RecordedEvent
from foldpoint.state import Record
from tests.core.run_ledger_records import RUN, STARTS, context, event, replayed

DEVICES = ("phone", "é", "hosted-executor-0a1b2c3d")
TURNS, CALLS, STEPS = ("t1", "t2", "t3"), ("c1", "c2"), (0, 1, 2)
INPUTS: tuple[Json, ...] = (1, 1.0, {"a": -0.0})


def _of_turn(turn: str) -> list[Event]:
    stepped = [
        event(name, turn_id=turn, step=step, **fields)
        for step in STEPS
        for name, fields in (
            ("model_requested", {"model": "m"}),
            ("model_failed", {"reason": ""}),
            ("model_responded", {"output": {"role": "assistant", "content": "."}, "proposed_calls": [], "usage": None}),
            (
                "model_responded",
                {
                    "output": {"role": "assistant", "content": "!"},
                    "proposed_calls": [{"tool": "x", "input": value} for value in INPUTS[1:]],
                    "served_model": "m2",
                    "usage": {"input_tokens": 0, "output_tokens": 1},
                },
            ),
        )
    ]
    calls = [
        event("tool_call_proposed", turn_id=turn, call={"id": call, "tool": "x", "effect": "network", "input": value})
        for call in CALLS
        for value in INPUTS
    ]
    return [
        event("context_built", turn_id=turn, context=context(3)),
        event("context_built", turn_id=turn, context=context(5, 5)),
        event(
            "context_compacted",
            turn_id=turn,
            estimated_tokens_before=2,
            estimated_tokens_after=1,
            dropped_turn_start=0,
            dropped_turn_end_exclusive=1,
        ),
        event("tool_proposals_rejected", turn_id=turn, reason="no"),
        event("tool_proposals_rejected", turn_id=turn, reason="\u2003"),
        *stepped,
        *calls,
    ]


def _of_call(call: str) -> list[Event]:
    result: dict[str, Json] = {"call_id": call, "summary": "", "data": None, "artifacts": [], "visibility": "both"}
    return [
        event("policy_evaluated", call_id=call, decision={"decision": "allow"}),
        event("policy_evaluated", call_id=call, decision={"decision": "require_approval", "reason": "?"}),
        event("policy_evaluated", call_id=call, decision={"decision": "deny", "reason": "no"}),
        event("approval_granted", call_id=call, actor_id="ada"),
        event("approval_denied", call_id=call, actor_id="ada", reason=""),
        event("tool_started", call_id=call),
        event("tool_finished", result=result),
        event("tool_failed", call_id=call, reason="crashed"),
    ]


ENDS = [event("run_finished"), event("run_failed", reason="stop")]
EVENTS = [
    *STARTS,
    *chain.from_iterable(map(_of_turn, TURNS)),
    *chain.from_iterable(map(_of_call, CALLS)),
    *ENDS,
]
#: Chosen rarely, so that runs become long.
ENDING = {event["event"] for event in ENDS}


def legal_in(state: RunState) -> list[Event]:
    return _legal_in(canonical(state.checkpoint()))


@cache
def _legal_in(checkpoint: bytes) -> list[Event]:
    state = read_checkpoint(read_json(checkpoint))
    legal = [one for one in EVENTS if refusal(state, RecordedEvent(state.next_seq, 0, one)) is None]
    return [one for one in legal if one["event"] not in ENDING] or legal


class History:
    """The records so far, and the ledger that their writers believe in."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.ledger: list[tuple[RecordedEvent, str]] = []

    def write(self, hlc: Hlc, payload: dict[str, Json]) -> str:
        self.records.append(Record(hlc, f"op-{len(self.records)}", canonical(payload)))
        return str(payload["id"])

    def state(self) -> RunState:
        return replayed([record for record, _ in self.ledger])


@st.composite
def ledgers(draw: st.DrawFn, max_size: int = 16) -> list[RecordedEvent]:
    """A legal ledger as one device writes it."""
    state, ledger = RunState(), []
    for _ in range(draw(st.integers(0, max_size))):
        if not (legal := legal_in(state)):
            break
        ledger.append(RecordedEvent(state.next_seq, draw(st.integers(0, 3)), draw(st.sampled_from(legal))))
        apply(state, ledger[-1])
    return ledger


@st.composite
def histories(draw: st.DrawFn, max_size: int = 16, *, seals: bool = True) -> list[Record]:
    """Records of one run in the order of their writing, which is not the order of their stamps."""
    history = History()
    kinds = [*["next"] * 7, *["rival"] * 2, "stray", "back", "noise", "end", *["seal"] * 2 * seals]
    for now in range(draw(st.integers(0, max_size))):
        device = draw(st.sampled_from(DEVICES))
        wall = now if draw(st.integers(0, 5)) else draw(st.integers(0, now))
        _write(draw, history, draw(st.sampled_from(kinds)), Hlc(wall, draw(st.integers(0, 1)), device))
    return history.records


def _write(draw: st.DrawFn, history: History, kind: str, hlc: Hlc) -> None:
    author = author_of(hlc.device_id)
    if kind == "seal":
        history.write(hlc, draw(_seals(author, [name for _, name in history.ledger])))
    elif kind == "noise":
        history.write(hlc, draw(_noise(author)))
    elif kind == "stray":
        seq = draw(st.integers(0, len(history.ledger) + 2))
        history.write(hlc, entry_payload(author, RecordedEvent(seq, 0, draw(st.sampled_from(EVENTS)))))
    elif kind == "end":
        history.write(hlc, entry_payload(author, RecordedEvent(len(history.ledger), 0, draw(st.sampled_from(ENDS)))))
    elif kind == "back":
        del history.ledger[draw(st.integers(0, len(history.ledger))) :]
    elif legal := legal_in(history.state()):
        record = RecordedEvent(len(history.ledger), draw(st.integers(0, 1)), draw(st.sampled_from(legal)))
        name = history.write(hlc, entry_payload(author, record))
        if kind == "next":
            history.ledger.append((record, name))


@st.composite
def _seals(draw: st.DrawFn, author: str, names: list[str]) -> dict[str, Json]:
    """A seal of what its writer believes in, of a part of it, or of what nobody knows."""
    believed = [*names, "unknown"] if not names or draw(st.integers(0, 7)) == 0 else names
    start = draw(st.integers(0, len(believed) - 1))
    end = draw(st.integers(start, len(believed) - 1))
    return seal_payload(author, RUN, end, tuple(believed[start : end + 1]), draw(st.integers(0, 3)))


@st.composite
def _noise(draw: st.DrawFn, author: str) -> dict[str, Json]:
    """A payload that says nothing of the run."""
    record = RecordedEvent(0, 0, draw(st.sampled_from(EVENTS)))
    payload = entry_payload(author, record)
    return draw(
        st.sampled_from(
            [
                {**payload, "id": "forged"},
                {**payload, "run_id": "run-2", "id": payload_id(author, {**payload, "run_id": "run-2"})},
                {"id": "x", "run_id": RUN},
            ]
        )
    )
