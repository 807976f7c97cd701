from typing import Any

from foldpoint.canonical import Json
from foldpoint.fence import check_dispatch, may_dispatch
from foldpoint.fold import fold
from foldpoint.lease import Held, Lease, Lost, Register
from foldpoint.state import SyncState
from tests.fixtures.vectors import golden, ops, section, text

Registers = dict[str, Register]


def call(registers: Registers, step: Any) -> dict[str, Json]:
    """Take one step of a trace; the result in the vectors' shape."""
    agent = step["agent_id"]
    register = registers.get(agent, Register(agent))
    match step["call"]:
        case "current":
            return {"ok": current(register)}
        case "acquire":
            answer: Register | Held | Lost = register.acquire(step["device_id"], step["ttl_ms"], step["now"])
        case "renew":
            answer = register.renew(step["device_id"], step["epoch"], step["ttl_ms"], step["now"])
        case "release":
            answer = register.release(step["device_id"], step["epoch"])
        case unknown:
            raise AssertionError(unknown)
    if isinstance(answer, Held):
        return {"err": {"variant": "Held", **answer.lease.to_json()}}
    if isinstance(answer, Lost):
        return {
            "err": {
                "variant": "Lost",
                "agent_id": answer.agent_id,
                "claimed_epoch": answer.claimed_epoch,
                "current_epoch": answer.current_epoch,
            }
        }
    registers[agent] = answer
    return {"ok": current(answer)}


def current(register: Register) -> Json:
    return register.current.to_json() if register.current else None


def check_steps(registers: Registers, steps: list[Any]) -> None:
    for index, step in enumerate(steps):
        expected = {kind: step["result"][kind] for kind in ("ok", "err") if kind in step["result"]}
        assert text(call(registers, step)) == text(expected), index


@golden("lease.json/traces")
def test_lease_register(case: Any) -> None:
    check_steps({}, case["steps"])


@golden("fence.json/cases")
def test_fence(case: Any) -> None:
    if "register_steps" in case:
        check_steps({}, case["steps"])
        return
    state = SyncState() if case.get("empty_state") else fold(ops(section("fence.json/ops")))
    lease = registers_named(case["register"]).get(case["agent_id"], Register("")).current
    committed = state.committed_run(case["agent_id"], case["run_id"])
    decision = check_dispatch(committed, lease, case["device_id"], case["epoch"])
    assert text(decision) == text(case["decision"])
    assert may_dispatch(decision) is case["may_dispatch"]


def registers_named(name: str) -> Registers:
    """The registers that the steps of this name build."""
    (steps,) = (case["steps"] for case in section("fence.json/cases") if case.get("register_steps") == name)
    registers: Registers = {}
    check_steps(registers, steps)
    return registers


@golden("fence.json/ops")
def test_op_of_the_fence_recomputes(case: Any) -> None:
    (op,) = ops([case])
    assert op.computed_id() == op.op_id


@golden("wire.json/shapes/fence")
def test_decision_as_json(case: Any) -> None:
    committed = fold(ops(section("fence.json/ops"))).committed_run("milo", "done")
    assert committed is not None
    lease = Lease("milo", "b", 2, 0)
    decisions = {
        "proceed": check_dispatch(None, lease, "b", 2),
        "already_committed": check_dispatch(committed._replace(op_id="op-1"), lease, "a", 1),
        "stale_epoch": check_dispatch(None, lease, "a", 1),
        "not_held": check_dispatch(None, None, "a", 1),
    }
    assert decisions[case["decision"]] == case
