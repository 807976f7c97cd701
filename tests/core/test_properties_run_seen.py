"""What was ever seen of a run, and what an executor may conclude (server.md §5, §6)."""

from hypothesis import assume, given
from hypothesis import strategies as st

from foldpoint.device_log import DeviceLog
from foldpoint.fold import fold
from foldpoint.op import Op
from foldpoint.run_seen import Seen, Status, newest, sightings, status_of
from foldpoint.surfaces import intent
from tests.fixtures.ops import THOROUGH, arrivals, batches, intent_writes, logs

intent_logs = logs(intent_writes)
RUN = {"id": "r1", "agent_id": "ada"}


def merged(one: Seen, other: Seen) -> Seen:
    return {slot: max(seen[slot] for seen in (one, other) if slot in seen) for slot in one.keys() | other.keys()}


def of_run(seen: Seen, agent: str, run: str) -> Seen:
    return {slot: record for slot, record in seen.items() if (slot.agent_id, slot.key) == (agent, "id:" + run)}


def status(ops: list[Op], agent: str = "ada", run: str = "r1") -> Status:
    return status_of(fold(ops).committed_run(agent, run), of_run(sightings(ops), agent, run))


@THOROUGH
@given(log=intent_logs, data=st.data())
def test_sightings_of_parts_merge_to_the_sightings_of_all(log: list[Op], data: st.DataObject) -> None:
    seen: Seen = {}
    for batch in data.draw(batches(log)):
        seen = merged(seen, sightings(batch))
    assert seen == sightings(log)


@THOROUGH
@given(log=intent_logs, data=st.data())
def test_sightings_do_not_depend_on_order_or_repetition(log: list[Op], data: st.DataObject) -> None:
    assert sightings(data.draw(arrivals(log))) == sightings(log)
    assert merged(sightings(log), sightings(log)) == sightings(log)


@THOROUGH
@given(log=intent_logs)
def test_sightings_hold_whole_intents_that_exist(log: list[Op]) -> None:
    by_id = {op.op_id: op for op in log}
    for slot, record in sightings(log).items():
        op = by_id[record.op_id]
        assert record == (op.hlc, op.op_id, op.payload_text)
        assert slot == (
            intent.agent_id(op.payload),
            op.fold_key,
            intent.epoch(op.payload),
            intent.is_failed(op.payload),
        )
        assert not intent.is_committed(op.payload)


@THOROUGH
@given(log=intent_logs)
def test_status_agrees_with_what_the_fold_still_knows(log: list[Op]) -> None:
    state = fold(log)
    for agent, intents in state.intents.items():
        for key, record in intents.runs.items():
            if not key.startswith("id:"):
                continue
            concluded = status(log, agent, key[3:])
            if key in intents.committed_runs:
                assert concluded is Status.COMMITTED
            elif intent.is_failed(record.value()):
                assert concluded in (Status.FAILED, Status.IN_DOUBT)
            else:
                assert concluded is Status.IN_DOUBT


@THOROUGH
@given(log=intent_logs)
def test_a_run_is_not_started_exactly_when_no_intent_of_it_exists(log: list[Op]) -> None:
    for run in ("r1", "r2", "never"):
        exists = any(intent.agent_id(op.payload) == "ada" and op.fold_key == "id:" + run for op in log)
        assert (status(log, run=run) is Status.NOT_STARTED) is not exists


@THOROUGH
@given(log=intent_logs, epoch=st.integers(0, 5))
def test_a_commit_settles_a_run_for_ever(log: list[Op], epoch: int) -> None:
    committed = later(log, {**RUN, "epoch": epoch, "status": "committed"})
    assert status([*log, committed]) is Status.COMMITTED


@THOROUGH
@given(log=intent_logs, epoch=st.integers(0, 5))
def test_a_new_pending_puts_an_uncommitted_run_in_doubt(log: list[Op], epoch: int) -> None:
    assume(status(log) is not Status.COMMITTED)
    assert status([*log, later(log, {**RUN, "epoch": epoch, "status": "pending"})]) is Status.IN_DOUBT


@THOROUGH
@given(log=intent_logs, spare=st.integers(0, 5))
def test_failing_at_every_doubtful_epoch_settles_an_uncommitted_run(log: list[Op], spare: int) -> None:
    assume(status(log) is not Status.COMMITTED)
    for epoch in sorted({spare} | {slot.epoch for slot in of_run(sightings(log), "ada", "r1") if not slot.failed}):
        log = [*log, later(log, {**RUN, "epoch": epoch, "status": "failed"})]
    assert status(log) is Status.FAILED


@THOROUGH
@given(log=intent_logs)
def test_the_newest_intent_of_a_run_is_the_one_with_the_greatest_stamp(log: list[Op]) -> None:
    seen = [op for op in log if op.fold_key == "id:r1" and intent.agent_id(op.payload) == "ada"]
    uncommitted = [op for op in seen if not intent.is_committed(op.payload)]
    found = newest(of_run(sightings(log), "ada", "r1"))
    assert (found and found[:2]) == max(((op.hlc, op.op_id) for op in uncommitted), default=None)


def later(log: list[Op], payload: dict[str, str | int]) -> Op:
    """An intent by a new device that has heard everything."""
    device = DeviceLog("judge")
    for op in log:
        device.observe(op.hlc)
    return device.append(0, "personal", "intent", {**payload})
