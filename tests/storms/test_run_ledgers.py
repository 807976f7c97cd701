"""A run that careless devices record and seal while it is read: always what all its records merge to (server.md §8)."""

import asyncio
from collections.abc import Iterable
from random import Random  # noqa: TID251 - the type of `dice`
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from app.services.projections.run_ledgers import FOLD
from app.services.projections.streams import Streams, Where
from app.services.projections.whole_ledgers import WholeLedger
from app.services.verification.verifying import verify
from app.sql.transactions import begun, reading
from foldpoint.canonical import canonical
from foldpoint.op import Op
from foldpoint.projections import RUN_LEDGER
from foldpoint.run_ledger.answers import conflicts, told
from foldpoint.run_ledger.entry import seal_payload
from foldpoint.run_ledger.merge import Merged, merge
from foldpoint.run_ledger.state import RunState
from foldpoint.run_ledger.transitions import apply
from foldpoint.run_ledger.wire import RecordedEvent
from foldpoint.state import record_of
from tests.core.run_ledger_histories import ENDING, EVENTS, legal_in
from tests.core.run_ledger_records import RUN
from tests.fixtures.devices import Device, NewDevice
from tests.fixtures.ledgers import EMPTY, Ledgers
from tests.fixtures.projections import number_of, recorded
from tests.wire.answers import read

BATCH = 40


class Story:
    """What the devices believe of the run together, and what they record of it."""

    def __init__(self, devices: list[Device], dice: Random) -> None:
        self.devices, self.dice = devices, dice
        self.state, self.ids = RunState(), list[str]()

    def go_on(self) -> None:
        kind, device = self.dice.random(), self.dice.choice(self.devices)
        device.wall_ms += self.dice.randrange(4)
        if kind < 0.06 and self.ids:
            self._seal(device)
        elif kind < 0.12:
            self._record(device, self.dice.randrange(self.state.next_seq + 3), self.dice.choice(EVENTS))
        else:
            told_now = self._next()
            name = self._record(device, self.state.next_seq, told_now)
            if kind < 0.9:
                apply(self.state, RecordedEvent(self.state.next_seq, 0, told_now))
                self.ids.append(name)

    def _next(self) -> dict[str, Any]:
        """A legal event; turns never run out, and the run never ends."""
        if self.state.phase["phase"] in ("ready_for_context", "turn_concluded", "policy_denied", "tool_failed"):
            turn = self.state.pending_compaction_turn or f"turn-{self.state.next_seq}"
            return {"event": "context_built", "run_id": RUN, "turn_id": turn, "context": EMPTY}
        if self.state.phase["phase"] == "ready_to_request_model":
            place = {name: self.state.phase[name] for name in ("turn_id", "step")}
            return {"event": "model_requested", "run_id": RUN, **place, "model": "m"}
        if self.state.phase["phase"] == "awaiting_model_response":
            place = {name: self.state.phase[name] for name in ("turn_id", "step")}
            said: dict[str, Any] = {
                "output": {"role": "assistant", "content": "."},
                "proposed_calls": [],
                "usage": None,
            }
            return {"event": "model_responded", "run_id": RUN, **place, **said}
        return self.dice.choice([one for one in legal_in(self.state) if one["event"] not in ENDING])

    def _record(self, device: Device, seq: int, event: dict[str, Any]) -> str:
        record: dict[str, Any] = {"seq": seq, "occurred_at_ms": self.dice.randrange(1_000_000), "event": event}
        payload: Any = recorded(device, record, RUN).payload
        return str(payload["id"])

    def _seal(self, device: Device) -> None:
        """Of what its device believes, or of a part of it, near the end or far below."""
        end = self.dice.randrange(max(0, len(self.ids) - 3), len(self.ids))
        end = self.dice.randrange(end + 1) if self.dice.random() < 0.2 else end
        start = max(0, end - self.dice.randrange(12))
        epoch = self.dice.randrange(1, 4)
        device.write(RUN_LEDGER.tag, seal_payload(device.name, RUN, end, tuple(self.ids[start : end + 1]), epoch))


async def test_a_run_is_what_its_records_merge_to_whatever_came_when(
    device: NewDevice, scope: str, dice: Random, engine_behind: AsyncEngine
) -> None:
    devices = [device(f"d{n}") for n in range(3)]
    story = Story(devices, dice)
    while sum(len(each.ops) for each in devices) < 900:
        story.go_on()
    ledgers = Ledgers(devices[0].client, scope, RUN)
    for each in devices:
        assert (await each.offer(each.ops[:1])).status_code == 200
    pushed = asyncio.gather(*map(_push_slowly, devices))
    while not pushed.done():
        read(await ledgers.get())
    await pushed
    merged = merge(RUN, [record_of(op) for each in devices for op in each.ops])
    answer = read(await ledgers.get())
    expected = canonical([merged.state.to_json(), merged.state.command, merged.blocked_at, merged.sealed])
    assert canonical([answer[name] for name in ("state", "command", "blocked_at", "sealed")]) == expected
    paged = [told(one) for one in merged.standings]
    statuses = {one["id"]: one for one in read(await ledgers.get("/statuses", limit=10_000))["statuses"]}
    assert statuses == {str(one["id"]): one for one in paged}
    lost = {one["id"]: one for one in read(await ledgers.get("/conflicts"))["conflicts"]}
    assert lost == {one["id"]: one for one in conflicts(merged.standings)}
    number = await number_of(engine_behind, scope)
    await _as_the_server_reads_it(engine_behind, number, merged)
    assert [fault async for fault in verify(engine_behind, number)] == []


async def _as_the_server_reads_it(engine: AsyncEngine, number: int, merged: Merged) -> None:
    """From a snapshot, and from the first seq to the last."""
    where = Where("epoch", number, sealed=False)
    async with reading(engine) as connection:
        pg = await begun(connection)
        walked = await (await WholeLedger.of(pg, where, RUN)).merged()
        found = (await Streams(engine).read(pg, where, FOLD, RUN)).now
    for one in (walked, found):
        assert one.state.checkpoint() == merged.state.checkpoint()
        assert (one.sealed, one.epoch, one.through) == (merged.sealed, merged.epoch, merged.through)
        assert one.cut() == merged.cut()
    assert walked.settle()[0] == merged.settle()[0]


async def _push_slowly(device: Device) -> None:
    for ops in _batches(device.ops):
        assert (await device.offer(ops)).status_code == 200


def _batches(ops: list[Op]) -> Iterable[list[Op]]:
    return (ops[start : start + BATCH] for start in range(0, len(ops), BATCH))
