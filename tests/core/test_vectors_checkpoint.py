from typing import Any

import pytest

from foldpoint.chain import ChainError
from foldpoint.checkpoint import (
    SUFFIX,
    AddressMismatch,
    CheckpointError,
    checkpoint_hash,
    checkpoint_pieces,
    read_checkpoint,
    verify_anchored,
)
from foldpoint.device_log import DeviceLog
from foldpoint.op import op_from_json
from foldpoint.state import state_hash
from tests.core.errors import as_anchor_variant, as_variant
from tests.fixtures.vectors import golden, ops, section, text


@golden("checkpoint.json/verify")
def test_checkpoint_hashes_and_integrity(case: Any) -> None:
    checkpoint = read_checkpoint(case["checkpoint"])
    frontier, scopes, claimed, state = (
        checkpoint.frontier,
        checkpoint.scopes,
        checkpoint.state_hash,
        checkpoint.state,
    )
    hashed = b"".join(checkpoint_pieces(frontier, scopes, claimed, state.pieces()))
    assert hashed.decode() == case["hash_input_canonical"]
    assert state_hash(state) == case["recomputed_state_hash"]
    assert checkpoint_hash(frontier, scopes, claimed, state.pieces()) == case["recomputed_checkpoint_hash"]
    assert checkpoint.checkpoint_hash + SUFFIX == case["file_name"]
    assert b"".join(checkpoint.pieces()).decode() == text(case["checkpoint"])
    if case["verify"] == "ok":
        checkpoint.verify()
        return
    with pytest.raises(CheckpointError) as refused:
        checkpoint.verify()
    assert as_variant(refused.value) == case["verify"]


@golden("checkpoint.json/anchored")
def test_tail_must_continue_its_checkpoint(case: Any) -> None:
    checkpoint, tail = read_checkpoint(case["checkpoint"]), ops(case["tail"])
    if case["result"] == "ok":
        verify_anchored(checkpoint, tail)
        return
    with pytest.raises((ChainError, CheckpointError)) as refused:
        verify_anchored(checkpoint, tail)
    assert as_anchor_variant(refused.value) == case["result"]


@golden("checkpoint.json/resume_anchored")
def test_device_resumes_from_a_checkpoint(case: Any) -> None:
    checkpoint = read_checkpoint(section("checkpoint.json/verify")[0]["checkpoint"])
    tail = ops(section("checkpoint.json/anchored")[0]["tail"])[: case["tail_len"]]
    op = op_from_json(case["next_op_logical_clock"])
    device = DeviceLog.resume_anchored(case["device_id"], checkpoint, tail)
    assert text(device.append(0, op.scope, op.surface, op.payload).to_json()) == text(case["next_op_logical_clock"])


@golden("checkpoint.json/same_state_two_frontiers")
def test_one_state_at_two_frontiers_has_two_addresses(case: Any) -> None:
    both, just_a = read_checkpoint(case["both"]), read_checkpoint(case["just_a"])
    both.verify()
    just_a.verify()
    assert both.state_hash == just_a.state_hash
    assert both.checkpoint_hash != just_a.checkpoint_hash


def test_file_is_named_after_its_hash() -> None:
    checkpoint = read_checkpoint(section("checkpoint.json/verify")[0]["checkpoint"])
    checkpoint.verify_address(checkpoint.checkpoint_hash + SUFFIX)
    with pytest.raises(AddressMismatch) as refused:
        checkpoint.verify_address("ckpt-0" + SUFFIX)
    assert as_variant(refused.value) == {
        "variant": "AddressMismatch",
        "expected": checkpoint.checkpoint_hash,
        "found": "ckpt-0",
    }
