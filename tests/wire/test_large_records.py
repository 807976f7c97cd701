"""Answers of large records: pages end early, whole answers are the same bytes, and neither fills the memory."""

import asyncio
import re
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import orjson
import pytest

from app.server import EACH
from foldpoint.fold import fold
from foldpoint.resume import resume
from foldpoint.state import state_hash
from foldpoint.transcript import transcript
from tests.fixtures.devices import Device, NewDevice, collect
from tests.fixtures.server import RunningServer
from tests.fixtures.vectors import text
from tests.storms.stored import until_waiting
from tests.wire.answers import read

MIB = 1024 * 1024
#: A page holds so much, and the one record that goes beyond it.
PAGE_BYTES = 8 * MIB
#: What an answer may take beside what it is made of: a page as rows, as values and as text.
MAY_TAKE = 5 * PAGE_BYTES


async def of_every_surface(mac: Device, sizes: list[int]) -> None:
    """Records of these sizes on event streams, keyed surfaces, registries and in both views of intents."""
    for number, size in enumerate(sizes):
        padding, name = "x" * size, f"{number % 7}-{number}"
        mac.say(padding, conversation="c" if number % 3 else "d", role="assistant" if number % 2 else "user")
        mac.say("gone", tombstone=True)
        mac.write("knowledge", {"id": name, "text": padding})
        mac.write("registry:config", {"id": "k" * 250 + name, "text": padding})
        mac.write("routing", {"sample": padding})
        for run in ("a" + name, "b" + name):
            mac.write("intent", {"id": run, "agent_id": "ada", "epoch": 1, "status": "pending", "note": padding})
        mac.write("intent", {"id": run, "agent_id": "ada", "epoch": 1, "status": "committed", "note": padding})
        await mac.push()


async def get(mac: Device, path: str, **params: Any) -> httpx.Response:
    response = await mac.client.get(f"/v1/scopes/{mac.scope}/{path}", params=params)
    assert response.status_code == 200, response.text
    return response


@pytest.mark.parametrize("collected", [False, True])
async def test_whole_answers_are_the_crates_whatever_the_sizes_of_their_records(
    device: NewDevice, collected: bool
) -> None:
    """Sizes on both sides of what comes with its page, alone and among small ones."""
    mac = device("mac")
    await of_every_surface(mac, [1, 20_000, 20_000, 2, 16_000, 16_500, 3, 4, 100_000, 5])
    if collected:
        await collect([mac], mac.ops[:-3])
    folded = fold(mac.ops)
    state = read(await get(mac, "state"))
    assert state["state_hash"] == state_hash(folded) == read(await get(mac, "state/hash"))["state_hash"]
    assert orjson.dumps(state["state"], option=orjson.OPT_SORT_KEYS) == folded.text()
    for name in ("c", "d"):
        turns, resumed = transcript(folded, name), resume(transcript(folded, name))
        answer = read(await get(mac, "transcript", conversation=name))
        assert text(answer["turns"]) == text([turn.to_json() for turn in turns])
        answer = read(await get(mac, "resume", conversation=name))
        assert text(answer["messages"]) == text(resumed.messages)
        assert answer["repairs"] == resumed.repairs


@pytest.fixture
async def large(device: NewDevice) -> Device:
    """Records of a mebibyte: twelve turns, facts and entries of a registry."""
    mac = device("mac")
    for number in range(12):
        mac.say("x" * MIB)
        mac.write("knowledge", {"id": f"{number:02}", "text": "x" * MIB})
        mac.write("registry:config", {"id": f"{number:02}", "text": "x" * MIB})
    return await mac.push()


PAGED = {"log/knowledge": "knowledge", "registries/config": "registry:config", "log/conversation": "conversation"}


async def test_a_page_of_large_records_ends_early_and_its_cursor_says_so(large: Device) -> None:
    for path, surface in PAGED.items():
        first = read(await get(large, path, limit=1_000))
        rest = read(await get(large, path, limit=1_000, cursor=first["cursor"]))
        pages = [first["records"], rest["records"]]
        assert ([len(page) for page in pages], rest["cursor"]) == ([8, 4], None)
        found = [record["op_id"] for page in pages for record in page]
        assert found == [op.op_id for op in large.ops if op.surface == surface]


async def test_a_limited_transcript_of_large_turns_ends_early_in_either_direction(large: Device) -> None:
    said = [op.op_id for op in large.ops if op.surface == "conversation"]

    async def window(**place: str) -> tuple[list[str], str | None, str | None]:
        answer = read(await get(large, "transcript", conversation="c", limit=11, **place))
        return [turn["op_id"] for turn in answer["turns"]], answer["before"], answer["after"]

    last, before, after = await window()
    assert (last, after) == (said[4:], None)
    assert before is not None
    first, start, after = await window(before=before)
    assert (first, start) == (said[:4], None)
    assert after is not None
    assert await window(after=after) == (said[4:], before, None)
    one = read(await get(large, "transcript", conversation="c", limit=1, before=after))
    onward, _, after = await window(after=one["before"])
    assert (onward, after is None) == (said[3:11], False)
    assert len(read(await get(large, "resume", conversation="c", limit=11))["messages"][0]["content"]) > 11 * MIB


class Memory:
    """The peak memory of a server process, in bytes."""

    def __init__(self, server: RunningServer) -> None:
        self._process = Path(f"/proc/{server.process.pid}")

    def forget(self) -> None:
        (self._process / "clear_refs").write_text("5")

    @property
    def peak(self) -> int:
        found = re.search(r"VmHWM:\s+(\d+) kB", (self._process / "status").read_text())
        assert found is not None
        return int(found[1]) * 1024


PATHS: dict[str, dict[str, Any]] = {
    "state": {},
    "state/hash": {},
    "transcript": {"conversation": "c"},
    "resume": {"conversation": "d", "limit": 1_000},
    "log/knowledge": {"limit": 5_000},
    "log/conversation": {"limit": 5_000},
    "registries/config": {"limit": 5_000},
}


async def test_no_answer_fills_the_memory(server: RunningServer, device: NewDevice) -> None:
    """Several times as much is stored of each surface as any of them may take."""
    mac = device("mac")
    for number in range(30):
        mac.say("x" * 2 * MIB, role="assistant" if number % 2 else "user")
        mac.say("y" * 1024, conversation="d", role="assistant" if number % 2 else "user")
        mac.write("knowledge", {"id": f"{number:02}", "text": "x" * 2 * MIB})
        mac.write("registry:config", {"id": f"{number:02}", "text": "x" * 2 * MIB})
        await mac.push()
    memory = Memory(server)
    for path, params in PATHS.items():
        memory.forget()
        before = memory.peak
        async with mac.client.stream("GET", f"/v1/scopes/{mac.scope}/{path}", params=params) as response:
            assert response.status_code == 200
            async for _ in response.aiter_raw():
                pass
        assert memory.peak - before < MAY_TAKE, path


async def test_a_state_that_nobody_waits_for_any_more_is_given_up(
    server: RunningServer, device: NewDevice, database: asyncpg.Connection
) -> None:
    """As many are asked for as a scope may at once; the next, which needs no record, does not wait for them."""
    mac = device("mac")
    mac.facts(1)
    await mac.push()
    url = f"/v1/scopes/{mac.scope}/state"
    async with server.client() as client, database.transaction():
        await database.execute("lock table record in access exclusive mode")
        waiting = [asyncio.create_task(client.get(url)) for _ in range(EACH)]
        await until_waiting(server.database_url, len(waiting))
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        async with asyncio.timeout(5):
            assert read(await mac.client.get(url, params={"at": "{}"}))["frontier"] == {}
