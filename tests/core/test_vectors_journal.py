from itertools import pairwise
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foldpoint.canonical import read_json
from foldpoint.device_log import DeviceLog
from foldpoint.journal.files import export_records, export_state, import_file
from foldpoint.journal.fold import fold_file, fold_journal, fold_onto
from foldpoint.journal.lines import read_lines
from foldpoint.journal.records import SURFACE, Seen
from foldpoint.journal.snapshot import Snapshot, read_snapshot, write_snapshot
from foldpoint.journal.state import JournalState
from foldpoint.op import Op
from tests.fixtures.journal_vectors import FOLD_FILES, append, check_state, golden, records_of, summary
from tests.fixtures.vectors import text

ANYHOW = settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def pushed(case: Any, *, seen: Seen | None = None) -> list[Op]:
    """The readable lines of a case as one device's ops, as any JSON client would push them."""
    log = DeviceLog("laptop")
    readable = [line.text for line in read_lines(case["text"].encode()) if line.op]
    return [append(log, 1_000, read_json(line.encode()), source, seen) for source, line in enumerate(readable)]


def readable(case: Any) -> dict[str, Any]:
    return {**case["expected"], "skipped": 0}


@golden(*FOLD_FILES)
def test_a_file_folds_to_the_crates_state(case: Any) -> None:
    check_state(fold_file(case["text"].encode()), case["expected"])


@golden(*FOLD_FILES)
def test_a_file_folds_line_by_line(case: Any) -> None:
    lines = case["text"].split("\n")
    for step in case.get("steps", ()):
        state = fold_file("".join(line + "\n" for line in lines[: step["after_lines"]]).encode())
        if "state" in step:
            check_state(state, step["state"])
        else:
            kept = summary(state)
            assert text({name: kept[name] for name in step["summary"]}) == text(step["summary"])


@golden(*FOLD_FILES)
def test_one_devices_ops_fold_the_same_in_any_order_and_batches(case: Any) -> None:
    ops = pushed(case)

    @ANYHOW
    @given(st.permutations(ops), st.lists(st.integers(0, len(ops)), max_size=4))
    def check(arrived: list[Op], cuts: list[int]) -> None:
        check_state(fold_journal(records_of(arrived)), readable(case))
        check_state(fold_in_batches(records_of(ops), cuts), readable(case))

    check()


@golden(*FOLD_FILES)
def test_what_one_device_has_seen_does_not_matter(case: Any) -> None:
    for seen in ({}, {"laptop": (0, 0), "phone": (2**63, 7)}):
        check_state(fold_journal(records_of(pushed(case, seen=seen))), readable(case))


def fold_in_batches(records: list[Any], cuts: list[int]) -> JournalState:
    """Fold up to each cut, and go on each time from what was stored there."""
    snapshot = Snapshot()
    for start, end in pairwise([0, *sorted(cuts), len(records)]):
        state, taken = fold_onto(snapshot, records[start:end], recent=0)
        snapshot = read_snapshot(write_snapshot(taken))
    return state


@golden(*FOLD_FILES)
def test_an_imported_file_folds_to_the_crates_state(case: Any) -> None:
    log = DeviceLog("laptop")
    imported = import_file(case["text"].encode(), "laptop", "s")
    ops = [log.append(0, "personal", SURFACE, line.payload) for line in imported]
    assert len({op.fold_key for op in ops}) == len(ops)
    check_state(fold_journal(records_of(ops)), case["expected"])
    assert len([line for line in imported if line.detail]) == case["expected"]["skipped"]


@golden(*FOLD_FILES)
def test_exported_records_are_a_file_of_the_same_state(case: Any) -> None:
    log = DeviceLog("laptop")
    ops = [
        log.append(0, "personal", SURFACE, line.payload) for line in import_file(case["text"].encode(), "laptop", "s")
    ]
    check_state(fold_file(b"".join(export_records(records_of(ops)))), case["expected"])


@golden(*FOLD_FILES)
def test_an_exported_state_is_a_file_of_that_state(case: Any) -> None:
    state = fold_file(b"".join(export_state(fold_file(case["text"].encode()))))
    check_state(state, {**readable(case), "records": state.records})
