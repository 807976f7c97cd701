from typing import Any

import pytest

from foldpoint.canonical import canonical
from foldpoint.compaction import Acks, CompactionError, NothingAcked, UnackedDevice, plan
from foldpoint.fold import fold_onto
from foldpoint.op import read_hlc
from foldpoint.retention import KeepAll, Policy, RetentionError, default_policy, read_policy
from foldpoint.state import state_hash
from tests.fixtures.vectors import golden, ops, story, text

LOG = story("retention.json/ops")
ACK_TABLE = story("retention.json/ack_table")
DEFAULT_POLICY = story("wire.json/shapes/policy_default")


def acks_of(value: Any) -> Acks:
    return Acks({device: read_hlc(hlc) for device, hlc in value["acked"].items()})


@golden("retention.json/cases")
def test_a_plan_keeps_stubs_and_drops_as_the_crate_does(case: Any) -> None:
    policy, expected = read_policy(case["policy"]), case["result"]
    if "error" in expected:
        with pytest.raises(RetentionError) as refused:
            plan(ops(LOG), acks_of(case["acks"]), policy, case["as_of_ms_given"])
        variant = {"variant": type(refused.value).__name__}
        surface = {"surface": str(refused.value)} if "surface" in expected["error"] else {}
        assert {**variant, **surface} == expected["error"]
        return
    planned = plan(ops(LOG), acks_of(case["acks"]), policy, case["as_of_ms_given"])
    assert planned.as_of_ms == expected["as_of_ms"]
    assert planned.frontier.to_json() == expected["frontier"]
    assert b"".join(planned.checkpoint.pieces()).decode() == text(expected["checkpoint"])
    assert [op.op_id for op in planned.retained] == expected["retained_op_ids"]
    assert planned.dropped_ops == expected["dropped_ops"]
    assert planned.dropped == expected["retention"]["dropped"]
    assert [list(stub) for stub in planned.tombstoned] == expected["retention"]["tombstoned"]
    assert state_hash(fold_onto(planned.checkpoint.state, planned.retained)) == expected["state_hash_after_tail"]


@golden("retention.json/errors")
def test_a_log_that_is_not_acknowledged_is_not_planned(case: Any) -> None:
    acks = acks_of(case["acks"]) if "acks" in case else Acks()
    with pytest.raises(CompactionError) as refused:
        plan(ops(LOG), acks, Policy())
    assert type(refused.value).__name__ == case["error"]["variant"]
    if isinstance(refused.value, UnackedDevice):
        assert refused.value.device_id == case["error"]["device_id"]
    else:
        assert isinstance(refused.value, NothingAcked)


def test_acks_are_monotone() -> None:
    table = Acks()
    for step in ACK_TABLE:
        assert table.ack(step["device"], read_hlc(step["hlc"])) == step["advanced"]
        stable = table.stable_frontier()
        assert stable is not None
        assert stable.to_json() == step["stable_frontier"]


@golden("wire.json/shapes/retention_rules")
def test_a_rule_is_written_as_it_is_read(case: Any) -> None:
    policy = {"rules": {}, "default_rule": case}
    assert canonical(read_policy(policy).to_json()).decode() == text(policy)


def test_the_default_policy_is_the_crates() -> None:
    expected = DEFAULT_POLICY
    own = default_policy(
        expected["rules"]["conversation"]["last_n"]["n"], expected["rules"]["trajectory"]["max_age_ms"]["max_age_ms"]
    )
    assert canonical(own.to_json()).decode() == text(expected)
    assert own.default_rule == KeepAll()
