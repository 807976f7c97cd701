"""Time travel in a scope with a retention policy: one past, whoever asks, and however retention ended (server.md §5).

STORM_ROUNDS makes longer histories of it.
"""

from collections.abc import AsyncIterator, Callable
from random import Random  # noqa: TID251 - the type of `dice`
from typing import Any

import orjson
import pytest

from foldpoint.resume import resume
from foldpoint.state import read_state
from foldpoint.surfaces import skill
from foldpoint.transcript import transcript
from tests.fixtures.server import RunningServer
from tests.storms.stored import connected
from tests.storms.test_past import ROUNDS, History, ask, asked, faults
from tests.wire.answers import read, refused

#: Rules that leave a little of what is below the floor.
POLICY = {
    "rules": {"conversation": {"last_n": {"n": 5}}, "knowledge": {"last_n": {"n": 2}}, "skill": {"last_n": {"n": 1}}},
    "default_rule": "keep_all",
}
#: A database that fails once turns were trimmed, when it comes to skills.
FAIL = f"""
create function fail() returns trigger language plpgsql as $$ begin raise exception 'out of order'; end $$;
create trigger fail before delete on record for each row when (old.surface = {skill.SURFACE.number})
    execute function fail();
"""


@pytest.fixture
async def trimmed(start_server: Callable[..., RunningServer], dice: Random) -> AsyncIterator[History]:
    """A history whose scope has a policy."""
    server = start_server()
    async with server.client() as client:
        read(await client.put("/v1/scopes/ada/retention", content=orjson.dumps(POLICY)))
        yield History(client, "ada", dice)


async def test_a_trimmed_past_is_one_past_whoever_asks_and_however_retention_ended(
    trimmed: History, database_url: str
) -> None:
    """What `/state` says of a frontier, `/transcript` and `/resume` say; or all say 410."""
    answered = 0
    for number in range(2 * ROUNDS):
        await trimmed.go_on()
        if number % 2:
            await trim(trimmed)
        answered += await agreed(trimmed)
    assert (await last_trim(trimmed))["done"]
    async with connected(database_url) as database:
        await database.execute(FAIL)
        await trim(trimmed)
        cut_short = await last_trim(trimmed)
        assert (cut_short["done"], cut_short["dropped"] > 0) == (False, True)
        await trimmed.go_on()
        answered += await agreed(trimmed, cut_short=True)
        await database.execute("drop function fail cascade")
    read(await trimmed.client.post("/v1/scopes/ada/gc"))
    assert (await last_trim(trimmed))["done"]
    for _ in range(ROUNDS):
        await trimmed.go_on()
        answered += await agreed(trimmed)
    assert answered > 3 * ROUNDS
    assert await faults(database_url, "ada") == []


async def trim(history: History) -> None:
    """Bring more below the floor than the policy leaves there, and collect."""
    for device in history.devices:
        for number in range(4):
            device.say(f"{device.name} {number}", f"c{number % 2}")
            device.write("knowledge", {"id": f"{device.name} {number}", "n": len(device.ops)})
            device.write("skill", {"n": number})
        await device.push()
    highest = max(op.hlc for op in history.log)
    for device in history.devices:
        await device.ack(highest)
    await history.client.post(f"/v1/scopes/{history.scope}/gc")


async def last_trim(history: History) -> Any:
    return read(await history.client.get(f"/v1/scopes/{history.scope}/retention"))["last"]


async def agreed(history: History, *, cut_short: bool = False) -> int:
    """Ask of frontiers; how many were answered. While records are going, turns are told of none."""
    answered = 0
    for _ in range(12):
        frontier = history.frontier()
        response = await ask(history, "state", asked(frontier))
        answered += response.status_code == 200
        for name in ("c0", "c1"):
            told = [await ask(history, what, asked(frontier, conversation=name)) for what in ("transcript", "resume")]
            if cut_short:
                assert all(refused(one, "unavailable") for one in told)
            elif response.status_code == 200:
                state = read_state(read(response)["state"])
                said = transcript(state, name)
                assert [read(told[0])["turns"], read(told[1])["messages"]] == [
                    [turn.to_json() for turn in said], resume(said).messages,
                ], frontier  # fmt: skip
            else:
                assert all(refused(one, "frontier_collected") for one in (response, *told)), frontier
    return answered
