import struct
from typing import Any

from foldpoint.canonical import Json
from foldpoint.checkpoint import checkpoint_from_ops, checkpoint_onto, verify_anchored
from foldpoint.fold import fold, fold_at, fold_onto
from foldpoint.frontier import frontier_of
from foldpoint.resume import resume
from foldpoint.state import Record, SyncState, state_hash
from foldpoint.transcript import conversation_ids, transcript
from tests.fixtures.vectors import golden, ops, text


def record_json(record: Record | None) -> Json:
    return None if record is None else record.to_json()


def moving_average(state: SyncState) -> str:
    """The replay of the vectors' README, as the bits of its double."""

    def step(score: float, record: Record) -> float:
        payload = record.value()
        sample = payload.get("sample") if isinstance(payload, dict) else None
        number = float(sample) if isinstance(sample, int | float) and not isinstance(sample, bool) else 0.0
        return 0.7 * score + 0.3 * number

    return struct.pack(">d", state.replay("routing", 0.5, step)).hex()


def intent_answers(state: SyncState, asked: Any) -> dict[str, Json]:
    """Every intent query for the agents and runs that a case asks about."""
    runs = asked["intent"]
    return {
        "committed_run_ids": {agent: list(state.committed_run_ids(agent)) for agent in runs},
        "committed_run_op_id": {
            agent: {run: (found := state.committed_run(agent, run)) and found.op_id for run in runs[agent]}
            for agent in runs
        },
        "fencing_epoch": {agent: state.fencing_epoch(agent) for agent in runs},
        "intent": {agent: {run: record_json(state.intent(agent, run)) for run in runs[agent]} for agent in runs},
    }


def answers(state: SyncState, asked: Any, *, log_entries_in_full: bool) -> dict[str, Json]:
    entries: dict[str, Json] = {
        tag: [record.to_json() if log_entries_in_full else record.op_id for record in state.log_entries(tag)]
        for tag in asked["log_entries"]
    }
    return {
        **intent_answers(state, asked),
        "conversation_ids": list(conversation_ids(state)),
        "log_entries": entries,
        "resume_messages": {name: resume(transcript(state, name)).messages for name in asked["resume_messages"]},
        "routing_replay_bits": moving_average(state),
        "transcript": {name: [turn.to_json() for turn in transcript(state, name)] for name in asked["transcript"]},
    }


def check_fold(case: Any, *, log_entries_in_full: bool) -> None:
    state = fold(ops(case["ops"]))
    assert state.text().decode() == text(case["state"])
    assert state_hash(state) == case["state_hash"]
    given = answers(state, case["queries"], log_entries_in_full=log_entries_in_full)
    assert given.keys() == case["queries"].keys()
    for query, expected in case["queries"].items():
        assert text(given[query]) == text(expected), query


@golden("fold_small.json/cases")
def test_fold_of_a_small_set(case: Any) -> None:
    check_fold(case, log_entries_in_full=True)


@golden("fold_random.json/cases")
def test_fold_of_a_random_set(case: Any) -> None:
    check_fold(case, log_entries_in_full=False)


@golden("incremental.json/cases")
def test_checkpoint_and_tail_fold_like_the_whole(case: Any) -> None:
    below, tail = ops(case["below"]), ops(case["tail_arrival"])
    checkpoint = checkpoint_from_ops(below)
    assert b"".join(checkpoint.pieces()).decode() == text(case["checkpoint"])
    assert text({device: entry.seq for device, entry in checkpoint.frontier.items()}) == text(
        case["checkpoint_seq_frontier"]
    )
    half = fold_onto(checkpoint.state, tail[: len(tail) // 2])
    assert state_hash(half) == case["after_half_tail_state_hash"]
    for final in (fold_onto(half, tail[len(tail) // 2 :]), fold_onto(checkpoint.state, tail), fold(below + tail)):
        assert final.text().decode() == text(case["final_state"])
        assert state_hash(final) == case["final_state_hash"] == case["fold_all_state_hash"]


@golden("incremental.json/cases")
def test_checkpoint_onto_its_own_tail_is_the_checkpoint_of_everything(case: Any) -> None:
    below = ops(case["below"])
    tail = list({op.op_id: op for op in ops(case["tail_arrival"])}.values())
    checkpoint = checkpoint_from_ops(below)
    verify_anchored(checkpoint, tail)
    assert checkpoint_onto(checkpoint, tail) == checkpoint_from_ops(below + tail)


@golden("incremental.json/fold_at")
def test_fold_at_a_frontier(case: Any) -> None:
    log = ops(case["ops"])
    assert text({**frontier_of(log)}) == text(case["frontier_of"])
    for at in case["cases"]:
        state = fold_at(log, at["frontier"])
        assert state.text().decode() == text(at["state"]), at["name"]
        assert state_hash(state) == at["state_hash"], at["name"]


@golden("intents.json/cases")
def test_fold_of_intents(case: Any) -> None:
    state = fold(ops(case["ops"]))
    assert text(intents_json(state)) == text(case["intents_state"])
    assert state_hash(state) == case["state_hash"]
    for query, answer in intent_answers(state, case).items():
        assert text(answer) == text(case[query]), query


@golden("intents.json/stepwise_epoch_bump")
def test_fence_that_rises_evicts_pendings_of_the_base(case: Any) -> None:
    base = fold(ops(case["base_ops"]))
    assert text(intents_json(base)) == text(case["base_intents"])
    assert text(intents_json(fold_onto(base, ops(case["tail"])))) == text(case["final_intents"])


def intents_json(state: SyncState) -> Json:
    """The leased tier of a state's JSON form."""
    return {
        agent: {
            "fencing_epoch": intents.fencing_epoch,
            "runs": {key: record.to_json() for key, record in intents.runs.items()},
            "committed_runs": {key: record.to_json() for key, record in intents.committed_runs.items()},
        }
        for agent, intents in state.intents.items()
    }
