"""Reading and writing records, against the crate's decoder (run-ledger.md §2, §3)."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from foldpoint.canonical import Json
from foldpoint.run_ledger.reading import Undecodable, identifier, read_text
from foldpoint.run_ledger.wire import CONTEXT_PACK, DECISION, EVENT, MESSAGE, RESULT, read_record
from tests.fixtures.run_ledger_vectors import DEVIATIONS, cases, golden, text

READERS: dict[str, Callable[[Json], Any]] = {
    "recorded_event": lambda value: read_record(value).to_json(),
    "harness_event": EVENT,
    "message": MESSAGE,
    "policy_decision": DECISION,
    "context_pack": CONTEXT_PACK,
    "tool_result": RESULT,
    "run_id": identifier,
    "tool_name": identifier,
}


def decoded(case: Any) -> Any:
    return read_text(READERS[case["type"]], case["input"].encode("utf-8"))


@golden("wire-cases.json", "wire-sweep.json")
def test_decoding(case: Any) -> None:
    if case["ok"]:
        assert text(decoded(case)) == text(json.loads(case["normalized"]))
        return
    with pytest.raises(Undecodable) as refused:
        decoded(case)
    assert refused.value.error_class == case["error"]["class"]


@pytest.mark.parametrize(("file", "name"), DEVIATIONS)
def test_deviating_cases_are_refused(file: str, name: str) -> None:
    (case,) = [case for case in cases(file) if case["name"] == name]
    assert case["ok"]
    with pytest.raises(Undecodable):
        decoded(case)
