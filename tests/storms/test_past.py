"""Time travel is fold_at, over random frontiers, checkpoints and collections: exact, or 410 (server.md §5).

STORM_ROUNDS makes longer histories of it.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random  # noqa: TID251 - the type of `dice`
from typing import Any

import httpx
import orjson
import pytest

from app.database import NO_TIMEOUT, create_engine
from app.services.verification.verifying import verify
from app.sql.scopes import listed
from foldpoint.difference import difference_members
from foldpoint.fold import fold_at
from foldpoint.op import Op
from foldpoint.resume import resume
from foldpoint.run_seen import newest, sightings, status_of
from foldpoint.state import record_of, state_hash
from foldpoint.surfaces import conversation
from foldpoint.transcript import turns
from tests.fixtures.devices import Device, checkpoint_text
from tests.fixtures.server import RunningServer
from tests.wire.answers import read, refused

ROUNDS = int(os.environ.get("STORM_ROUNDS", "5"))
NAMES = ("mac", "my phone", "tablet")
Frontier = dict[str, int]


@dataclass
class History:
    """What three devices wrote, and what the server says it still holds of it."""

    client: httpx.AsyncClient
    scope: str
    dice: Random
    devices: list[Device] = field(init=False)
    floors: Frontier = field(default_factory=dict)
    starts: list[Frontier] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.devices = [Device(self.client, self.scope, name) for name in NAMES]

    @property
    def log(self) -> list[Op]:
        return [op for device in self.devices for op in device.ops]

    async def go_on(self) -> None:
        for device in self.devices:
            for _ in range(self.dice.randrange(12)):
                self._write(device)
            device.wall_ms += self.dice.randrange(40)
            if len(device.ops) > device.pushed:
                await device.push()
        for device in self.devices:
            if device.ops and self.dice.random() < 0.8:
                await device.ack(self.dice.choice(self.log).hlc)
        match self.dice.randrange(5):
            case 0:
                await self.client.post(f"/v1/scopes/{self.scope}/checkpoints")
            case 1:
                frontier = self.frontier()
                covered = [op for op in self.log if op.seq <= frontier.get(op.device_id, -1)]
                await self.client.put(f"/sync/{self.scope}/checkpoints", content=checkpoint_text(covered))
            case 2 | 3:
                await self.client.post(f"/v1/scopes/{self.scope}/gc")
            case 4:
                await self.client.post(f"/sync/{self.scope}/gc")
        await self._look()

    def _write(self, device: Device) -> None:
        dice, number = self.dice, len(device.ops)
        match dice.randrange(5):
            case 0:
                device.say(f"{device.name} {number}", f"c{dice.randrange(2)}", dice.choice(("user", "assistant")))
            case 1:
                device.write("registry:config", {"id": f"k{dice.randrange(3)}", "by": device.name, "n": number})
            case 2:
                device.write("knowledge", {"id": f"f{dice.randrange(9)}", "by": device.name})
            case 3:
                device.intend(
                    f"r{dice.randrange(3)}", dice.choice(("pending", "failed", "committed")), dice.randrange(4)
                )
            case _:
                device.write("conversation", {"conversation_id": "c0", "tombstone": True})

    async def _look(self) -> None:
        roster = read(await self.client.get(f"/v1/scopes/{self.scope}/roster"))
        self.floors = {device["device_id"]: device["dropped_below"] for device in roster["devices"]}
        listed = read(await self.client.get(f"/v1/scopes/{self.scope}/checkpoints"))["checkpoints"]
        self.starts = [{}, *(entry["frontier"] for entry in listed)]

    def frontier(self) -> Frontier:
        """Anything at all, more often something that is still near an answer."""
        near = self.dice.choice(self.starts) if self.starts and self.dice.random() < 0.6 else {}
        found = {}
        for device in self.devices:
            most = len(device.ops) - 1
            seq = self.dice.choice((near.get(device.name, -1), self.dice.randint(-1, most), most))
            if seq >= 0:
                found[device.name] = seq
        return found

    def is_answerable(self, frontier: Mapping[str, int]) -> bool:
        return any(
            all(frontier.get(device, -1) >= seq for device, seq in start.items())
            and all(
                seq <= start.get(device, -1) or self.floors.get(device, 0) <= start.get(device, -1) + 1
                for device, seq in frontier.items()
            )
            for start in self.starts
        )


@pytest.fixture
def history(admin: httpx.AsyncClient, scope: str, dice: Random) -> History:
    return History(admin, scope, dice)


async def test_any_past_is_fold_at_or_410(history: History, server: RunningServer) -> None:
    answered = refused_ = 0
    for _ in range(ROUNDS):
        await history.go_on()
        for _ in range(12):
            frontier = history.frontier()
            if history.is_answerable(frontier):
                await check_answers(history, frontier)
                answered += 1
            else:
                await check_refusals(history, frontier)
                refused_ += 1
    assert answered > 2 * ROUNDS
    assert refused_
    assert await faults(server.database_url, history.scope) == []


async def faults(url: str, scope: str) -> list[str]:
    engine = create_engine(url, pool_size=2, **NO_TIMEOUT)
    try:
        ((number, _),) = await listed(engine, scope)
        return [fault async for fault in verify(engine, number)]
    finally:
        await engine.dispose()


def asked(frontier: Frontier, **params: str) -> dict[str, str]:
    return {"at": orjson.dumps(frontier).decode(), **params}


async def ask(history: History, what: str, params: dict[str, str]) -> httpx.Response:
    return await history.client.get(f"/v1/scopes/{history.scope}/{what}", params=params)


async def check_answers(history: History, frontier: Frontier) -> None:
    state = fold_at(history.log, frontier)
    answer = read(await ask(history, "state", asked(frontier)))
    assert answer["state_hash"] == state_hash(state), frontier
    for name in ("c0", "c1"):
        said = [t for t in turns(state.log_entries(conversation.SURFACE.name)) if t.conversation_id == name]
        whole = read(await ask(history, "transcript", asked(frontier, conversation=name)))
        assert whole["turns"] == [turn.to_json() for turn in said], frontier
        tail = read(await ask(history, "transcript", asked(frontier, conversation=name, limit="2")))
        assert tail["turns"] == [turn.to_json() for turn in said[-2:]], frontier
        resumed, expected = read(await ask(history, "resume", asked(frontier, conversation=name))), resume(said)
        assert resumed["messages"] == expected.messages, frontier
    for run in ("r0", "r1", "r2"):
        await check_run(history, frontier, run)
    other = history.frontier()
    if history.is_answerable(other):
        between = {"from": orjson.dumps(other).decode(), "to": orjson.dumps(frontier).decode()}
        found = read(await ask(history, "diff", between))
        members = b"".join(difference_members(fold_at(history.log, other), state))
        assert found == {"from": other, "to": frontier, **orjson.loads(b"{%b}" % members)}


async def check_run(history: History, frontier: Frontier, run: str) -> None:
    """`committed` whenever the past is answerable; any other status if every op up to it is there."""
    response = await ask(history, "committed-run", asked(frontier, agent="ada", run=run))
    record = fold_at(history.log, frontier).committed_run("ada", run)
    held = [op for op in history.log if op.seq <= frontier.get(op.device_id, -1)]
    whole = all(history.floors.get(device, 0) == 0 for device in frontier)
    if record is None and not whole:
        refused(response, "frontier_collected")
        return
    answer = read(response)
    assert answer["record"] == (record and record.to_json())
    if whole:
        seen = sightings(op for op in held if op.surface == "intent" and op.fold_key == "id:" + run)
        assert answer["status"] == status_of(record, seen)
        assert answer["intent"] == ((last := newest(seen)) and last.to_json())
    else:
        assert answer["status"] == "committed"
        check_intent(answer["intent"], history.log, held, run)


def check_intent(told: Any, log: list[Op], held: list[Op], run: str) -> None:
    """Some intent of that past, and no older than what run_seen must still know of it."""
    of_run = [op for op in log if op.surface == "intent" and op.fold_key == "id:" + run]
    past = {op.op_id: op for op in held}
    kept = [record for record in sightings(of_run).values() if record.op_id in past]
    known = sightings(op for op in of_run if op.op_id in past)
    if told is None:
        assert not kept
    else:
        op = past[told["op_id"]]
        assert record_of(op) in known.values()
        assert all(record <= record_of(op) for record in kept)


async def check_refusals(history: History, frontier: Frontier) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("state", asked(frontier)),
        ("transcript", asked(frontier, conversation="c0")),
        ("resume", asked(frontier, conversation="c0")),
        ("committed-run", asked(frontier, agent="ada", run="r0")),
        ("diff", {"from": "{}", "to": orjson.dumps(frontier).decode()}),
    ]
    for what, params in calls:
        problem = refused(await ask(history, what, params), "frontier_collected")
        assert all(history.is_answerable(other) for other in problem["frontiers"]), (what, frontier)
