"""The golden vectors of run ledgers through the server (tests/vectors/run-ledger/README.md)."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import httpx
import pytest

from foldpoint.canonical import Json
from foldpoint.device_log import DeviceLog
from foldpoint.hlc import Hlc
from foldpoint.op import Op, read_hlc
from foldpoint.projection import payload_id
from foldpoint.slug import slug
from tests.fixtures.devices import body_of
from tests.fixtures.ledgers import Ledgers
from tests.fixtures.run_ledger_vectors import golden, text
from tests.wire.answers import read

TAG = "registry:foldpoint.run_ledger"
ORDERS = ("as it is", "the last device first", "one by one, latest first")


class Chains:
    """A vector's ops on chains of the devices that recorded them: each in the order of its stamps."""

    def __init__(self, ops: Iterable[Any]) -> None:
        self.chains: dict[str, list[Op]] = defaultdict(list)
        self.names: dict[str, str] = {}
        logs: dict[str, DeviceLog] = {}
        for op in sorted(ops, key=lambda op: (read_hlc(op["hlc"]), op["op_id"])):
            wall_ms, counter, device = stamp = read_hlc(op["hlc"])
            while device in self.chains and self.chains[device][-1].hlc[:2] >= stamp[:2]:
                device += "!"  # one device never has one stamp twice: another, next to it in every order
            content: dict[str, Json] = {"run_id": op["run_id"], "record": op["record"], "note": op["op_id"]}
            name = payload_id(device, content)
            log = logs.setdefault(device, DeviceLog(device))
            if counter:
                log.observe(Hlc(wall_ms, counter - 1, ""))
            authored = log.append(wall_ms, "personal", TAG, {**content, "id": name})
            assert authored.hlc == stamp._replace(device_id=device)
            self.chains[device].append(authored)
            self.names[name] = op["op_id"]

    def pushes(self, order: str) -> list[tuple[str, list[Op]]]:
        """What is pushed one after the other: a device pushes its own ops in order."""
        whole = list(self.chains.items())
        if order != "one by one, latest first":
            return whole if order == "as it is" else whole[::-1]
        waiting = {device: list(ops) for device, ops in whole}
        pushes = []
        while any(waiting.values()):
            device = max((name for name in waiting if waiting[name]), key=lambda name: waiting[name][0].hlc)
            pushes.append((device, [waiting[device].pop(0)]))
        return pushes

    def statuses(self, statuses: dict[str, Any]) -> dict[str, Any]:
        """With the names of the vector."""
        names = self.names
        return {
            names[name]: {**status, "winner": names[status["winner"]]} if "winner" in status else status
            for name, status in statuses.items()
        }


@pytest.mark.parametrize("order", ORDERS)
@golden("server-merge.json")
async def test_merge(case: Any, order: str, admin: httpx.AsyncClient, scope: str) -> None:
    (run,) = {op["run_id"] for op in case["ops"]}
    chains, ledgers = Chains(case["ops"]), Ledgers(admin, scope, run)
    for device, ops in chains.pushes(order):
        answer = await admin.post(f"/sync/{scope}/devices/{slug(device)}/ops", content=body_of(ops))
        assert answer.json() == {"accepted": len(ops), "deduped": 0}
        read(await ledgers.get())
    told = read(await ledgers.get())
    expected = case["expect"]
    for name in ("state", "command", "blocked_at"):
        assert text(told[name]) == text(expected[name])
    assert text(chains.statuses(told["statuses"])) == text(expected["statuses"])
    assert text(read(await ledgers.get("/readback"))) == text(expected["readback"])
    paged = read(await ledgers.get("/statuses"))["statuses"]
    statuses = {one["id"]: {name: one[name] for name in one if name not in ("id", "seq")} for one in paged}
    assert text(statuses) == text(told["statuses"])
    folded = [one["id"] for one in paged if one["status"] == "folded"]
    assert [chains.names[name] for name in folded] == expected["folded"]


@golden("scripted.json", "legal-walks.json", "legal-long.json")
async def test_walk(case: Any, admin: httpx.AsyncClient, scope: str) -> None:
    """Step by step as one writer appends it. What the crate refuses is not folded, unless it was before.

    A record above a gap waits here, and is folded once the gap is closed.
    """
    runs = [step["record"]["event"]["run_id"] for step in case["steps"] if step["ok"]]
    ledgers = Ledgers(admin, scope, runs[0] if runs else "run-1")
    folded: list[str] = []
    waiting = False
    for step in case["steps"]:
        answer = read(await Ledgers(admin, scope, step["record"]["event"]["run_id"]).append(step["record"]))
        (status,) = answer["statuses"]
        assert (status["status"] == "folded") is (step["ok"] or text(step["record"]) in folded), status
        waiting = waiting or status["status"] == "pending"
        if step["ok"]:
            folded.append(text(step["record"]))
        if step["ok"] and not waiting:
            assert (answer["next_seq"], text(answer["command"])) == (step["state"]["next_seq"], text(step["command"]))
    told = read(await ledgers.get())
    last = [step for step in case["steps"] if step["ok"]]
    if last:
        assert text({"state": told["state"], "command": told["command"]}) == text(
            {"state": last[-1]["state"], "command": last[-1]["command"]}
        )
    assert text(read(await ledgers.get("/readback"))) == text(case["readback_accepted"])
