"""kill -9 in the middle of upkeep, while devices push: checkpoints, collection and retention.

STORM_ROUNDS makes a long campaign of it.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from random import Random  # noqa: TID251 - the type of `dice`
from typing import Any

import httpx
import msgspec
import orjson
import pytest

from app.database import NO_TIMEOUT, create_engine
from app.services.verification.verifying import verify
from foldpoint.canonical import Json
from foldpoint.checkpoint import Checkpoint, read_checkpoint_text
from foldpoint.fold import fold, fold_onto
from foldpoint.op import Op
from foldpoint.op_text import read_op
from foldpoint.state import state_hash
from tests.fixtures.devices import checkpoint_text
from tests.fixtures.server import ADMIN_TOKEN
from tests.storms.devices import Device, devices, written
from tests.storms.fleet import AWAY, Fleet
from tests.storms.readers import PullAnswer
from tests.storms.stored import connected, until
from tests.storms.test_kills import Storm

ROUNDS = int(os.environ.get("STORM_ROUNDS", "5"))
DEVICES = 4
POLICY: Json = {"rules": {"conversation": {"last_n": {"n": 3}}}, "default_rule": "keep_all"}
CUT_SHORT = ["retention was cut short: `foldpoint gc` goes on with it; the state was not checked"]

WAITS = """
select count(*) from pg_stat_activity
where datname = current_database() and wait_event_type = 'Lock' and position($1 in query) > 0
"""
#: The lowest op that a device holds, and the first turn whose op is gone.
FIRST_OP = "select from op where scope = 1 and device = (select no from device where id = $1) order by seq limit 1"
FIRST_TURN = "select from record where scope = 1 and surface = 3 order by wall_ms, counter, device, op_id limit 1"


@dataclass(frozen=True)
class Moment:
    """Inside of a call: what to hold from outside, and the statement that then waits for it."""

    call: str
    hold: str
    waits: str


CHUNKS = "lock table checkpoint_chunk in share mode"
WRITING = "insert into checkpoint_chunk"
MAKING = Moment("make", CHUNKS, WRITING)
PUBLISHING = Moment("publish", CHUNKS, WRITING)
COLLECTING = Moment("collect", f"{FIRST_OP} for update", "delete from op")
TRIMMING = Moment("collect", f"{FIRST_TURN} for update", "delete from record")


@dataclass
class Upkeep:
    """The storm, and a device of its own that always has something new to keep small."""

    fleet: Fleet
    storm: Storm
    keeper: Device
    inside: int = 0

    @property
    def scope(self) -> str:
        return self.storm.scope

    @property
    def crew(self) -> list[Device]:
        return [*self.storm.crew, self.keeper]

    async def prepare(self, *, collect: bool) -> None:
        """Let there be new ops that all devices have; and, to be trimmed, turns whose ops are gone."""
        for number in range(8):
            self.keeper.say(f"turn {number}")
        await self.keeper.push(self.fleet, self.scope)
        highest = max(op.hlc for device in self.crew for op in device.ops[: device.acknowledged])
        for device in self.crew:
            path = f"/sync/{self.scope}/devices/{device.name}/ack"
            await self.done("POST", path, content=orjson.dumps(highest.to_json()))
        if collect:
            await self.done("POST", f"/v1/scopes/{self.scope}/checkpoints")
            await self.done("POST", f"/sync/{self.scope}/gc")

    async def done(self, method: str, path: str, **request: Any) -> httpx.Response:
        response = await self.fleet.call(method, path, **request)
        assert response.status_code == 200, response.text
        return response

    async def held(self) -> list[Op]:
        """What the server holds at some moment."""
        frontier = (await self.done("GET", f"/v1/scopes/{self.scope}/")).json()["frontier"]
        return [op for device in self.crew for op in device.ops if op.seq <= frontier.get(device.name, -1)]

    async def ask(self, call: str) -> None:
        """Make the call of the server that is killed next."""
        client, path, content = self.fleet.clients[self.fleet.running[0].base], f"/v1/scopes/{self.scope}/gc", b""
        if call == "make":
            path = f"/v1/scopes/{self.scope}/checkpoints"
        elif call == "publish":
            path, content = f"/sync/{self.scope}/checkpoints", checkpoint_text(await self.held())
        method = "PUT" if call == "publish" else "POST"
        with suppress(*AWAY):
            await client.request(method, path, content=content, headers={"Authorization": f"Bearer {ADMIN_TOKEN}"})

    async def kill_inside(self, moment: Moment) -> None:
        """Kill a server while its call waits for what is held; what waits then goes on without it."""
        async with connected(self.fleet.database_url) as outside, outside.transaction():
            arguments = [self.keeper.name.encode()] if "$1" in moment.hold else []
            await outside.execute(moment.hold, *arguments)
            asking = asyncio.create_task(self.ask(moment.call))

            async def is_inside() -> bool:
                async with connected(self.fleet.database_url) as looking:
                    return bool(await looking.fetchval(WAITS, moment.waits)) or asking.done()

            await until(is_inside)
            self.inside += not asking.done()
            self.fleet.kill()
        await asking

    async def kill_sometime(self, call: str) -> None:
        """Kill a server that has the call while some pushes are acknowledged."""
        asking = asyncio.create_task(self.ask(call))
        await self.storm.rage()
        self.fleet.kill()
        await asking


async def faults(url: str) -> list[str]:
    engine = create_engine(url, pool_size=2, **NO_TIMEOUT)
    try:
        return [fault async for fault in verify(engine, 1)]
    finally:
        await engine.dispose()


@asynccontextmanager
async def upkeep(fleet: Fleet, scope: str, dice: Random) -> AsyncIterator[Upkeep]:
    keeper, *crew = devices(DEVICES + 1, dice)
    found = Upkeep(fleet, Storm(fleet, scope, dice, crew), keeper)
    for device in found.crew:
        device.write()
        await device.push(fleet, scope)
    yield found
    await found.storm.end()
    await asyncio.gather(*(device.push(fleet, scope) for device in found.crew))


async def check_round(found: Upkeep, *, trims: bool) -> Checkpoint | None:
    """Nothing is wrong, or no more than that retention is to be finished; whoever bootstraps is given what is whole."""
    url = found.fleet.database_url
    if (wrong := await faults(url)) != []:
        assert trims
        assert wrong == CUT_SHORT
        await found.done("POST", f"/v1/scopes/{found.scope}/gc")
        assert await faults(url) == []
    latest = await found.done("GET", f"/sync/{found.scope}/checkpoints/latest")
    if latest.content == b"null":
        return None
    checkpoint = read_checkpoint_text(latest.content)
    checkpoint.verify()
    return checkpoint


async def storm_through(found: Upkeep, moments: Sequence[Moment], *, trims: bool = False) -> None:
    dice = found.storm.dice
    for number in range(ROUNDS):
        moment = moments[number % len(moments)]
        await found.prepare(collect=moment is TRIMMING)
        await found.storm.rage()
        if number < len(moments) or dice.random() < 0.5:
            await found.kill_inside(moment)
        else:
            await found.kill_sometime(moment.call)
        await check_round(found, trims=trims)
        await found.fleet.start(checkpoint_every="0")
    assert found.inside >= min(ROUNDS, len(moments))


@pytest.mark.timeout(120 + 20 * ROUNDS)
async def test_a_server_killed_while_it_makes_takes_or_collects_leaves_all_whole(
    own_fleet: Fleet, dice: Random, scope: str
) -> None:
    await own_fleet.start(2, checkpoint_every="0")
    async with upkeep(own_fleet, scope, dice) as found:
        await storm_through(found, [MAKING, COLLECTING, PUBLISHING])
    checkpoint = await check_round(found, trims=False)
    assert checkpoint is not None
    everything = fold(written(found.crew))
    since = {device: covered.seq for device, covered in checkpoint.frontier.items()}
    pulled = await found.done("POST", f"/sync/{scope}/devices/fresh/pull", json=since)
    later = [read_op(bytes(text)) for text in msgspec.json.decode(pulled.content, type=PullAnswer).ops]
    assert state_hash(fold_onto(checkpoint.state, later)) == state_hash(everything)
    answer = await found.done("GET", f"/v1/scopes/{scope}/state/hash")
    assert answer.json()["state_hash"] == state_hash(everything)


@pytest.mark.timeout(120 + 20 * ROUNDS)
async def test_retention_that_is_killed_is_finished_by_the_next_collection(
    own_fleet: Fleet, dice: Random, scope: str
) -> None:
    await own_fleet.start(2, checkpoint_every="0")
    async with upkeep(own_fleet, scope, dice) as found:
        await found.done("PUT", f"/v1/scopes/{scope}/retention", content=orjson.dumps(POLICY))
        await storm_through(found, [TRIMMING, MAKING, COLLECTING], trims=True)
    await found.prepare(collect=False)
    await found.done("POST", f"/v1/scopes/{scope}/gc")
    assert await check_round(found, trims=True) is not None
    last = (await found.done("GET", f"/v1/scopes/{scope}/retention")).json()["last"]
    assert last["done"]
    assert last["dropped"]
