from itertools import accumulate
from typing import Any

from foldpoint.canonical import read_json
from foldpoint.journal.fold import fold_file
from foldpoint.journal.lines import write_line
from foldpoint.journal.messages import read_transcript_message
from foldpoint.journal.recovery import Armed, Persistence, arm
from tests.fixtures.journal_vectors import check_state, golden
from tests.fixtures.vectors import text


def transcript(case: Any) -> list[Any]:
    """The history that a session is reopened with; without a transcript, the system message alone."""
    if case["transcript"] is None:
        return [{"role": "system"}]
    return [read_transcript_message(read_json(line.encode())) for line in case["transcript"].split("\n") if line]


def persistence(case: Any) -> Persistence:
    config = case["config"]
    return Persistence(config["persist"], config["append_only"], config["queue_persist"], config["todos_persist"])


def plan_file(case: Any) -> Any:
    return None if case["plan_file"] is None else read_json(case["plan_file"].encode())


def check_opened(armed: Armed, history: list[Any], opened: Any, appended: str) -> None:
    given = {
        "history_after_system": [*history[1:], *armed.recovered],
        "history_len": len(history) + len(armed.recovered),
        "history_len_before": len(history),
        "journal_appended": appended,
        "journal_armed": armed.writer,
        "plan": armed.plan,
        "queued_inputs": len(armed.queued),
        "recovered_messages": len(armed.recovered),
        "restored_plan": len(armed.plan),
        "restored_queue": len(armed.queued),
        "restored_rewinds": len(armed.undo_stack),
        "tree_loaded": False,
        "undoable_rewinds": len(armed.undo_stack),
    }
    assert text(given) == text(opened)


@golden("resume.json")
def test_a_session_reopens_as_in_the_harness(case: Any) -> None:
    journal, history = case["journal"] or "", transcript(case)
    for opened in [*case["opens"], None]:
        armed = arm(fold_file(journal.encode()), len(history), persistence(case), plan_file(case))
        appended = ""
        if armed.checkpoint is not None:
            appended = write_line({"op": "checkpoint", "messages": armed.checkpoint}, "TS").decode()
        if opened:
            check_opened(armed, history, opened, appended)
        journal += appended
    lengths = accumulate(reversed(armed.undo_stack), lambda n, frame: n + len(frame.messages), initial=len(history))
    assert list(lengths)[1:] == case["history_len_after_each_undo_on_one_more_open"]


@golden("live.json")
def test_a_journal_of_a_real_run_folds_and_reopens(case: Any) -> None:
    state = fold_file(case["text"].encode())
    check_state(state, case["expected"])
    contents = [message.value.get("content") for message in state.view.messages]
    live = [message.get("content") for message in case["live_history_after_system"]]
    assert (contents == live) is case["fold_messages_equal_live_by_content"]
    reopen = case["reopen"]
    known = case["transcript_messages"] or 1
    history = [None, *reopen["history_after_system"][: known - 1]]
    check_opened(arm(state, known, Persistence(queues=True, todos=True), None), history, reopen, "")


def test_a_plan_is_not_restored_unless_plans_are_kept() -> None:
    state = fold_file(write_line({"op": "plan", "steps": [{"step": "x", "status": "pending"}]}, "t"))
    assert arm(state, 1, Persistence(todos=True), None).plan == state.plan != []
    assert arm(state, 1, Persistence(), state.plan).plan == []
