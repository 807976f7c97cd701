"""Claims of many writers at two servers that are killed: every entry is handed out once (journal.md §8.4)."""

import asyncio
import os
from collections import Counter
from random import Random  # noqa: TID251 - the type of `dice`
from typing import Any

import pytest

from tests.fixtures.devices import Device
from tests.fixtures.journals import path
from tests.fixtures.projections import enqueue, journal
from tests.storms.fleet import Fleet
from tests.wire.answers import read

ROUNDS = int(os.environ.get("STORM_ROUNDS", "3"))
WRITERS, ENTRIES = 16, 120


class Claimers:
    """Writers that claim until nothing is left, each claim sent again with its key once it was answered."""

    def __init__(self, fleet: Fleet, scope: str, dice: Random) -> None:
        self.fleet, self.scope, self.dice = fleet, scope, dice
        self.handed: list[str] = []
        self.calls = self.pushes = 0
        self.ended = False
        self.news = asyncio.Condition()

    async def claim_on(self, writer: str) -> None:
        while True:
            pushes, ended = self.pushes, self.ended
            found = await self.claim(writer, 1 + self.dice.randrange(4))
            self.handed += [entry["id"] for entry in found]
            async with self.news:
                self.news.notify_all()
                if not found and ended:
                    return
                while not found and self.pushes == pushes and not self.ended:
                    await self.news.wait()

    async def pushed(self, *, ended: bool = False) -> None:
        async with self.news:
            self.pushes, self.ended = self.pushes + 1, ended
            self.news.notify_all()

    async def until(self, handed: int) -> None:
        async with self.news:
            await self.news.wait_for(lambda: len(self.handed) >= handed)

    async def claim(self, writer: str, count: int) -> list[dict[str, Any]]:
        self.calls += 1
        body = {"writer": writer, "session": "s", "queue": "steer", "count": count}
        key = {"idempotency-key": f"{writer}/{self.calls}"}
        response = await self.fleet.call("POST", path(self.scope, "/claim"), json=body, headers=key)
        if self.dice.random() < 0.2:
            again = await self.fleet.call("POST", path(self.scope, "/claim"), json=body, headers=key)
            assert again.content == response.content
        entries: list[dict[str, Any]] = read(response)["entries"]
        return entries


async def push(claimers: Claimers, device: Device) -> None:
    """Push what a device has written, a few ops at a time."""
    while waiting := device.ops[device.pushed : device.pushed + 7]:
        body = b"[" + b",".join(op.text() for op in waiting) + b"]"
        read(await claimers.fleet.call("POST", f"{device.path}/ops", content=body))
        device.pushed += len(waiting)
        await claimers.pushed()


def write(device: Device, dice: Random, count: int) -> set[str]:
    """Entries of the queue, and dequeues of another; some entries are said twice. The ids of the entries."""
    for n in range(count):
        device.wall_ms += dice.randrange(3)
        enqueue(device, f"{device.name} {n}")
        if dice.random() < 0.05:
            enqueue(device, f"{device.name} {dice.randrange(n + 1)}")
        if dice.random() < 0.1:
            journal(device, {"op": "dequeue", "queue": "follow_up", "count": 1}, source=n)
    payloads = (op.payload for op in device.ops)
    return {str(payload["id"]) for payload in payloads if isinstance(payload, dict) and "text" in str(payload["entry"])}


@pytest.mark.timeout(120 + 20 * ROUNDS)
async def test_each_entry_is_handed_out_once_by_servers_that_are_killed(
    own_fleet: Fleet, dice: Random, scope: str
) -> None:
    """Three devices push meanwhile; their clocks are alike, so that most of what they bring comes late."""
    fleet = own_fleet
    await fleet.start(2)
    claimers = Claimers(fleet, scope, dice)
    async with fleet.running[0].client() as client:
        devices = [Device(client, scope, f"d{n}") for n in range(3)]
        entries = set[str]().union(*(write(device, dice, ENTRIES // 3) for device in devices))
        first = devices[0].ops[0]
        read(await client.post(f"{devices[0].path}/ops", content=b"[" + first.text() + b"]"))
    async with asyncio.TaskGroup() as group:
        for n in range(WRITERS):
            group.create_task(claimers.claim_on(f"w{n}"))
        pushing = [group.create_task(push(claimers, device)) for device in devices]
        for done in range(1, ROUNDS + 1):
            await claimers.until(done * len(entries) // (ROUNDS + 1))
            fleet.kill(dice.randrange(2))
            await fleet.start()
        await asyncio.wait(pushing)
        await claimers.pushed(ended=True)
    handed = Counter(claimers.handed)
    assert max(handed.values()) == 1
    assert set(handed) == entries
    state = read(await fleet.call("GET", path(scope), params={"session": "s"}))
    assert state["double_delivery"] == []
    print(f"{len(entries)} entries, {claimers.calls} claims, {fleet.retries} retries")  # noqa: T201 - with -s
