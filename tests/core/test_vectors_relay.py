from typing import Any

from foldpoint.canonical import Json
from foldpoint.checkpoint import Checkpoint, CheckpointError, read_checkpoint
from foldpoint.op import Op, read_hlc
from foldpoint.relay import Refusal
from tests.core.errors import as_variant
from tests.core.memory_relay import CheckpointUnverified, FrontierTruncated, MemoryRelay, Refused
from tests.fixtures.vectors import golden, ops, text


@golden("relay.json/traces")
def test_relay(case: Any) -> None:
    relay = MemoryRelay(case["eviction_horizon_ms"])
    trace_ops = ops(case["ops"])
    checkpoints = [read_checkpoint(checkpoint) for checkpoint in case["checkpoints"]]
    for index, step in enumerate(case["steps"]):
        assert text(result(relay, step, trace_ops, checkpoints)) == text(without_display(step["result"])), index


def result(relay: MemoryRelay, step: Any, trace_ops: list[Op], checkpoints: list[Checkpoint]) -> dict[str, Json]:
    """Take one step of a trace; what it gives in the vectors' shape."""
    try:
        return {"ok": answer(relay, step, trace_ops, checkpoints)}
    except Refused as error:
        return {"err": refusal_variant(step["device_id"], error.refusal)}
    except FrontierTruncated as error:
        chain = error.chain
        return {
            "err": {
                "variant": "FrontierTruncated",
                "device_id": chain.device_id,
                "dropped_below": chain.dropped_below,
            }
        }
    except CheckpointUnverified as error:
        return {
            "err": {
                "variant": "CheckpointFrontierUnverified",
                "device_id": error.device_id,
                "seq": error.seq,
                "detail": error.detail,
            }
        }
    except CheckpointError as error:
        return {"err": {"variant": "Checkpoint", "inner": as_variant(error)}}


def answer(relay: MemoryRelay, step: Any, trace_ops: list[Op], checkpoints: list[Checkpoint]) -> Json:
    now, device = step["now"], step.get("device_id", "")
    match step["call"]:
        case "register":
            return relay.register(device, now).to_json()
        case "push":
            accepted, deduped = relay.push(device, [trace_ops[i] for i in step["ops"]], now)
            return {"accepted": accepted, "deduped": deduped}
        case "pull":
            served = [op.op_id for op in relay.pull(device, step["since"], now)]
            return {"op_ids": [*served], "latest_checkpoint": latest_hash(relay)}
        case "ack":
            acknowledged = relay.ack(device, read_hlc(step["hlc"]), now)
            return {"advanced": acknowledged.advanced, "reinstated": acknowledged.reinstated}
        case "roster":
            return [entry.to_json() for entry in relay.roster]
        case "stable_frontier":
            return relay.stable and dict(relay.stable.to_json())
        case "checkpoint_put":
            return relay.checkpoint_put(device, checkpoints[step["checkpoint"]], now)
        case "checkpoint_get":
            return latest_hash(relay)
        case "gc":
            return {"dropped": {**relay.gc()}}
        case unknown:
            raise AssertionError(unknown)


def latest_hash(relay: MemoryRelay) -> str | None:
    return relay.latest.checkpoint_hash if relay.latest else None


def refusal_variant(device: str, refusal: Refusal) -> dict[str, Json]:
    """A refused push as the crate's error; our facts say more than its fields."""
    facts = refusal.facts
    match refusal.code:
        case "foreign_ops":
            return {"variant": "ForeignOps", "device_id": device, "op_device": facts["op_device"]}
        case "chain_broken":
            return {"variant": "Chain", "device_id": device, "detail": refusal.detail}
        case "chain_fork":
            return {"variant": "Fork", "device_id": device, "seq": facts["seq"]}
        case "gap":
            return {
                "variant": "Gap",
                "device_id": device,
                "expected": facts["expected"],
                "found": facts["found"],
            }
        case unknown:
            raise AssertionError(unknown)


def without_display(expected: Any) -> Json:
    """The crate's human texts of relay errors are not ours; server.md §12 has codes instead."""
    if "err" in expected:
        return {"err": {name: value for name, value in expected["err"].items() if name != "display"}}
    return {"ok": expected["ok"]}
