"""P4, P5, P6: what readers and executors ask, beside a bare endpoint and beside the crate in process."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from itertools import count
from statistics import median

import orjson

from bench.corpus import Author, chat, intent
from bench.figures import Ratio, Sample
from bench.talk import Dice
from bench.wire import Connection, ask_all, connections
from bench.world import World, opened_scope, pushes, seconds

SHORT_TURNS = 1_000
RESUMED_TURNS = 10_000
#: As often as car-bench repeats itself; both sides give their best.
RESUMES = 15
LOOKING_UP = 32
INTENTS = 5_000
MS = 1_000


async def tail(world: World) -> AsyncGenerator[Sample, None]:
    """P4: request by request in turns on one connection; medians of a round."""
    async with connections(world.server.address, 1) as (connection,), connections(world.bare.address, 1) as (other,):
        scope = await opened_scope(world, connection, "tail", "laptop")
        for name, turns in (("long", world.size.turns), ("short", SHORT_TURNS)):
            author = Author("laptop" if name == "long" else "phone", conversation=name)
            await ask_all(connection, pushes(world, scope, author.device, author.bodies(chat, turns // 1_000, 1_000)))
        long, short = (_tail_of(world, scope, name) for name in ("long", "short"))
        bare = world.bare.address.get(f"/bare/{scope}/laptop")
        assert len(orjson.loads(await connection.ask(long))["turns"]) == 50
        yield {}
        for _ in count():
            took: dict[str, list[float]] = {"long": [], "short": [], "bare": []}
            for _ in range(world.size.tails):
                took["long"].append(MS * await seconds(connection.ask(long)))
                took["short"].append(MS * await seconds(connection.ask(short)))
                took["bare"].append(MS * await seconds(other.ask(bare)))
            middle = {name: median(times) for name, times in took.items()}
            yield {"P4a": Ratio(middle["long"], middle["short"]), "P4b": Ratio(middle["long"], middle["bare"])}


def _tail_of(world: World, scope: str, conversation: str) -> bytes:
    return world.server.address.get(f"/v1/scopes/{scope}/transcript?conversation={conversation}&limit=50")


async def resumed(world: World) -> AsyncGenerator[Sample, None]:
    """P5: the conversation of car-bench, pushed here; the best of as many calls as the crate makes."""
    texts = await world.crates.ops("turns", RESUMED_TURNS)
    async with connections(world.server.address, 1) as (connection,):
        scope = await opened_scope(world, connection, "resume", "device-0")
        await ask_all(connection, pushes(world, scope, "device-0", [b"[" + b",".join(texts) + b"]"]))
        request = world.server.address.get(f"/v1/scopes/{scope}/resume?conversation=c")
        messages = len(orjson.loads(await connection.ask(request))["messages"])
        yield {}
        for _ in count():
            ours = [await seconds(connection.ask(request)) for _ in range(RESUMES)]
            alone = await world.crates.alone("resume", str(RESUMED_TURNS))
            assert alone["messages"] == messages, "the crate resumes otherwise"
            yield {"P5": Ratio(MS * min(ours), MS * alone["seconds"])}


async def look_ups(world: World) -> AsyncGenerator[Sample, None]:
    """P6: 32 connections ask for one run each time: most committed, some not, some never begun."""
    async with (
        connections(world.server.address, LOOKING_UP) as opened,
        connections(world.bare.address, LOOKING_UP) as others,
    ):
        scope = await opened_scope(world, opened[0], "runs", "laptop")
        bodies = Author("laptop").bodies(intent, INTENTS // 1_000, 1_000)
        await ask_all(opened[0], pushes(world, scope, "laptop", bodies))
        asked = [_runs(world, scope, seed) for seed in range(LOOKING_UP)]
        bare = [[world.bare.address.get(f"/bare/{scope}/laptop")] * world.size.lookups] * LOOKING_UP
        yield {}
        for number in count():
            ours = theirs = 0.0
            for half in range(2):
                if (number + half) % 2:
                    theirs = await seconds(_all_at_once(others, bare))
                else:
                    ours = await seconds(_all_at_once(opened, asked))
            requests = LOOKING_UP * world.size.lookups
            yield {"P6": Ratio(requests / ours, requests / theirs)}


def _runs(world: World, scope: str, seed: int) -> list[bytes]:
    """Runs as `bench.corpus.intent` names them."""
    dice = Dice(seed)
    path = f"/v1/scopes/{scope}/committed-run?agent=agent-{{}}&run=run-{{}}-{{}}"
    fours = [dice.below(INTENTS // 8) for _ in range(world.size.lookups)]
    return [world.server.address.get(path.format(four % 5, four, dice.below(4))) for four in fours]


async def _all_at_once(opened: Sequence[Connection], requests: Sequence[Sequence[bytes]]) -> None:
    await asyncio.gather(*(ask_all(each, own) for each, own in zip(opened, requests, strict=True)))
