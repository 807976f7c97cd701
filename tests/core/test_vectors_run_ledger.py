"""The state machine, its commands and its readback, against the crate (run-ledger.md §6 to §11)."""

from typing import Any

from foldpoint.canonical import Json
from foldpoint.run_ledger.errors import IllegalEvent
from foldpoint.run_ledger.readback import readback
from foldpoint.run_ledger.state import RunState, read_checkpoint
from foldpoint.run_ledger.transitions import apply
from foldpoint.run_ledger.wire import RecordedEvent, read_record
from tests.fixtures.run_ledger_vectors import golden, text


def outcome(state: RunState, record: RecordedEvent) -> dict[str, Json]:
    """What a vector tells of applying one record; a refused one must leave the state as it was."""
    before = state.checkpoint()
    try:
        apply(state, record)
    except IllegalEvent as error:
        assert text(state.checkpoint()) == text(before)
        return {"ok": False, "error": error.to_json()}
    return {"ok": True, "state": state.to_json(), "command": state.command}


def told(step: dict[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in step.items() if name not in ("record", "label")}


@golden("scripted.json", "legal-walks.json", "legal-long.json", "mutated-walks.json", "shuffled.json")
def test_walk(case: Any) -> None:
    state = RunState()
    accepted, everything = [], []
    for step in case["steps"]:
        record = read_record(step["record"])
        assert text(record.to_json()) == text(step["record"])
        assert text(outcome(state, record)) == text(told(step))
        everything.append(record)
        if step["ok"]:
            accepted.append(record)
    assert (len(accepted), len(everything) - len(accepted)) == (case["accepted"], case["rejected"])
    assert text(readback(accepted)) == text(case["readback_accepted"])
    if "readback_all" in case:
        assert text(readback(everything)) == text(case["readback_all"])


@golden("transitions.json")
def test_every_event_in_every_phase(case: Any) -> None:
    state = RunState()
    for record in case["ledger"]:
        apply(state, read_record(record))
    assert text({"state": state.to_json(), "command": state.command}) == text(
        {"state": case["state"], "command": case["command"]}
    )
    for trial in case["trials"]:
        restored = read_checkpoint(state.checkpoint())
        assert text(outcome(restored, read_record(trial["record"]))) == text(told(trial)), trial["label"]
