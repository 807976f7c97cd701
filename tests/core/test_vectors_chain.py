from typing import Any

import pytest

from foldpoint.chain import ChainError, verify_log
from foldpoint.device_log import DeviceLog
from foldpoint.hlc import Clock
from foldpoint.op import op_from_json, read_hlc
from tests.core.errors import as_variant
from tests.fixtures.vectors import golden, ops, section, text


@golden("hlc.json/traces")
def test_clock(case: Any) -> None:
    clock = Clock()
    for index, step in enumerate(case["steps"]):
        if "tick" in step:
            stamp = clock.tick(step["tick"], step["device_id"])
            assert stamp.to_json() == step["stamp"], index
        else:
            clock.observe(read_hlc(step["observe"]))
        assert [clock.wall_ms, clock.counter] == step["witnessed"], index


@golden("hlc.json/ordering")
def test_stamps_sort_by_numbers_and_then_bytes(case: Any) -> None:
    stamps = sorted(read_hlc(stamp) for stamp in case["input"])
    assert text([stamp.to_json() for stamp in stamps]) == text(case["sorted"])


@golden("verify.json/cases")
def test_verify_log_reports_the_first_failure(case: Any) -> None:
    log = ops(case["ops"])
    if case["result"] == "ok":
        verify_log(log)
        return
    with pytest.raises(ChainError) as refused:
        verify_log(log)
    assert as_variant(refused.value) == case["result"]
    assert str(refused.value) == case["display"]


def test_the_chain_of_the_op_ids_verifies() -> None:
    verify_log(ops(section("op_id.json/chain")))


@golden("verify.json/resume")
def test_device_resumes_from_its_log(case: Any) -> None:
    log = ops(case["ops"])
    if "error" in case:
        with pytest.raises(ChainError) as refused:
            DeviceLog.resume(case["device_id"], log)
        assert as_variant(refused.value) == case["error"]
        return
    op = op_from_json(case["next_op_logical_clock"])
    device = DeviceLog.resume(case["device_id"], log)
    assert text(device.append(0, op.scope, op.surface, op.payload).to_json()) == text(case["next_op_logical_clock"])
