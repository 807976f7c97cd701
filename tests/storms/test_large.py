"""R34, R35: a scope of hundreds of MB is first synced over a link that drops, and a long history is read at its end.

STORM_MB is the size of the scope; 422 is the report's.
"""

import asyncio
import os
from collections.abc import Callable
from hashlib import sha256
from random import Random  # noqa: TID251 - the type of `dice`
from typing import Any

import httpx
import orjson

from tests.fixtures.devices import Device, body_of
from tests.fixtures.server import RunningServer
from tests.storms.stored import connected, until
from tests.wire.answers import read

MB = 1024 * 1024
SIZE = int(os.environ.get("STORM_MB", "32")) * MB
TURN = 64 * 1024
SYNCS = 10
PATIENT = httpx.Timeout(120)


async def fill(client: httpx.AsyncClient, scope: str, size: int) -> Device:
    """A device whose log has this size, pushed in requests of some MB."""
    mac = Device(client, scope, "mac")
    text = "a word or two, " * (TURN // 15)
    while len(mac.ops) * TURN < size:
        for _ in range(64):
            mac.say(f"{len(mac.ops)} {text}", f"c{len(mac.ops) % 5}")
        response = await client.post(f"{mac.path}/ops", content=body_of(mac.ops[mac.pushed :]), timeout=PATIENT)
        assert response.json()["accepted"] == 64
        mac.pushed = len(mac.ops)
    return mac


class Link:
    """A link that drops: an answer comes through up to so many bytes, then the connection is gone."""

    def __init__(self, client: httpx.AsyncClient, dice: Random, most: int) -> None:
        self.client, self.dice, self.most = client, dice, most
        self.drops = 0

    async def get(self, path: str, **request: Any) -> tuple[httpx.Response, bytes, bool]:
        """The answer, what came of its body, and whether that is all."""
        budget = self.dice.randrange(self.most // 4, self.most)
        body = bytearray()
        async with self.client.stream("GET", path, timeout=PATIENT, **request) as response:
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > budget:
                    self.drops += 1
                    return response, bytes(body[:budget]), False
        return response, bytes(body), True


async def sync_by_pages(link: Link, scope: str) -> list[str]:
    """The op ids, read from the beginning by cursors; a page that did not come whole is asked for again."""
    found: list[str] = []
    params = {"limit": "50"}
    while True:
        _, body, whole = await link.get(f"/v1/scopes/{scope}/ops", params=params)
        if not whole:
            continue
        page = orjson.loads(body)
        found += [op["op_id"] for op in page["ops"]]
        if page["caught_up"]:
            return found
        params["cursor"] = page["cursor"]


async def sync_by_ranges(link: Link, scope: str) -> tuple[bytes, str]:
    """The text of the latest checkpoint, gone on with where the link dropped; and the cursor after it."""
    (entry, *_) = read(await link.client.get(f"/v1/scopes/{scope}/checkpoints"))["checkpoints"]
    text = bytearray()
    while len(text) < entry["size"]:
        response, body, _ = await link.get(
            f"/v1/scopes/{scope}/checkpoints/{entry['checkpoint_hash']}", headers={"range": f"bytes={len(text)}-"}
        )
        assert response.status_code == 206
        assert response.headers["etag"] == f'"{entry["checkpoint_hash"]}"'
        text += body
    return bytes(text), entry["cursor"]


async def test_R34_a_first_sync_goes_on_where_the_link_dropped(
    start_server: Callable[..., RunningServer], dice: Random, scope: str
) -> None:
    server = start_server()
    async with server.client() as client:
        mac = await fill(client, scope, SIZE)
        paging = Link(client, dice, SIZE // 4)
        assert await sync_by_pages(paging, scope) == [op.op_id for op in mac.ops]
        made = read(await client.post(f"/v1/scopes/{scope}/checkpoints", timeout=PATIENT))
        late = mac.say("later")
        await mac.push()
        ranges = Link(client, dice, SIZE // 4)
        text, cursor = await sync_by_ranges(ranges, scope)
        assert ranges.drops > 3
        assert len(text) > SIZE
        checked = sha256(text.replace(b'"checkpoint_hash":"%b",' % made["checkpoint_hash"].encode(), b"", 1))
        assert made["checkpoint_hash"] == "ckpt-" + checked.hexdigest()[:32]
        page = read(await client.get(f"/v1/scopes/{scope}/ops", params={"cursor": cursor}))
        assert [op["op_id"] for op in page["ops"]] == [late.op_id]


async def test_R34_ten_first_syncs_at_once_leave_pushes_going_in_bounded_memory(
    start_server: Callable[..., RunningServer], dice: Random, scope: str
) -> None:
    """While ten devices take everything, another goes on pushing one op after another, and none is put off."""
    server = start_server()
    async with server.client() as client:
        mac = await fill(client, scope, SIZE)
        read(await client.post(f"/v1/scopes/{scope}/checkpoints", timeout=PATIENT))
        before = peak_memory(server)
        links = [Link(client, Random(dice.random()), 4 * SIZE) for _ in range(SYNCS)]
        syncing = [
            asyncio.create_task(sync_by_pages(link, scope) if n % 2 else sync_by_ranges(link, scope))
            for n, link in enumerate(links)
        ]
        pushed = 0
        while not all(task.done() for task in syncing):
            mac.say("meanwhile")
            await mac.push()
            pushed += 1
        for n, task in enumerate(syncing):
            result = await task
            assert len(result) >= SIZE // TURN if n % 2 else len(result[0]) > SIZE
        assert pushed > SYNCS
        assert peak_memory(server) - before < 160 * MB


def peak_memory(server: RunningServer) -> int:
    """The most that the server's process ever had, in bytes."""
    with open(f"/proc/{server.process.pid}/status") as status:  # noqa: PTH123
        (line,) = (line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


TURNS = 30_000
#: Of some thirty thousand that hold the conversation.
BLOCKS_OF_A_TAIL = 200


async def test_R35_the_end_of_a_long_history_is_read_alone(
    start_server: Callable[..., RunningServer], database_url: str, scope: str
) -> None:
    """Of 30,000 turns, 60 of them with 200 KB of tool output, the last 50 cost what they hold."""
    server, output = start_server(), "x" * 200_000
    async with server.client() as client:
        mac = Device(client, scope, "mac")
        for n in range(TURNS):
            mac.say(f"turn {n}") if n % 500 else mac.say(output, role="tool", tool_use_id=f"t{n}")
            if n % 2_500 == 2_499:
                await mac.push()
    server.stop()
    before = await blocks_read(database_url)
    server = start_server()
    async with server.client() as client:
        tail, resumed, earlier = await end_of(client, scope)
    server.stop()
    assert await blocks_read(database_url) - before < BLOCKS_OF_A_TAIL
    assert [turn["op_id"] for turn in tail["turns"]] == [op.op_id for op in mac.ops[-50:]]
    (said,) = (message["content"] for message in resumed["messages"])
    assert said.split("\n\n") == [turn["content"] for turn in tail["turns"]]
    assert [turn["op_id"] for turn in earlier["turns"]] == [op.op_id for op in mac.ops[-100:-50]]


async def end_of(client: httpx.AsyncClient, scope: str) -> tuple[Any, Any, Any]:
    """The last 50 turns, the messages from them, and the 50 turns before."""
    path, params = f"/v1/scopes/{scope}", {"conversation": "c", "limit": "50"}
    tail = read(await client.get(f"{path}/transcript", params=params))
    resumed = read(await client.get(f"{path}/resume", params=params))
    earlier = read(await client.get(f"{path}/transcript", params={**params, "before": tail["before"]}))
    return tail, resumed, earlier


BLOCKS = """
select sum(heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit + toast_blks_read + toast_blks_hit)::bigint
from pg_statio_user_tables where relname in ('op', 'record')
"""


async def blocks_read(url: str) -> int:
    """Blocks of ops and records that were read so far; a connection tells when it ends."""
    async with connected(url) as connection:

        async def alone() -> bool:
            others = (
                "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
            )
            return bool(await connection.fetchval(others) == 0)

        await until(alone)
        return int(await connection.fetchval(BLOCKS))
