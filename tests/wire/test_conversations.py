"""The list of conversations (server.md §11): what it needs is kept beside the turns, so that none is read for it."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from sqlalchemy import event

from app.main import create_app
from app.settings import Settings
from foldpoint.fold import fold
from foldpoint.transcript import conversation_ids, transcript
from tests.fixtures.devices import START_MS, Device, NewDevice, collect
from tests.fixtures.server import ADMIN_TOKEN, RunningServer
from tests.wire.answers import read, refused

SHARED = "x" * 224
NAMES = [
    "", "\0", "a", "a\0", "aa", "B", "b", "é", "e\u0301", "\uffff", "😀", "a/b", "%", SHARED, SHARED[:-1], SHARED + "a",
    SHARED + "b", SHARED + "a" * 40, SHARED + "Z" * 300, SHARED + "y" * 65_000, SHARED[:-1] + "w", SHARED + "é",
]  # fmt: skip


async def listed(client: httpx.AsyncClient, scope: str, **params: Any) -> Any:
    return read(await client.get(f"/v1/scopes/{scope}/conversations", params=params))


async def names_by_page(client: httpx.AsyncClient, scope: str, limit: int) -> list[str]:
    names: list[str] = []
    params: dict[str, Any] = {"limit": limit}
    while True:
        page = await listed(client, scope, **params)
        names += [entry["conversation_id"] for entry in page["conversations"]]
        if page["cursor"] is None:
            return names
        assert len(page["conversations"]) == limit
        params["cursor"] = page["cursor"]


async def test_an_entry_has_the_number_of_turns_and_the_first_and_last_stamp(device: NewDevice, scope: str) -> None:
    mac, phone = device("mac"), device("phone")
    phone.wall_ms = START_MS - 5
    for each in (mac, phone, mac):
        each.say("x")
        await each.push()
    phone.wall_ms = START_MS + 1
    phone.say("x")
    await phone.push()
    assert await listed(mac.client, scope) == {
        "conversations": [
            {
                "conversation_id": "c",
                "turns": 4,
                "first": phone.ops[0].hlc.to_json(),
                "last": phone.ops[-1].hlc.to_json(),
            }
        ],
        "cursor": None,
    }
    assert phone.ops[-1].hlc.wall_ms == mac.ops[-1].hlc.wall_ms


async def test_equal_stamps_are_told_apart_by_the_device_ids_bytes(device: NewDevice, scope: str) -> None:
    devices = [device(name) for name in ("b", "\uffff1", "Z", "😀2")]
    for each in devices:
        each.say("x")
        await each.push()
    (entry,) = (await listed(devices[0].client, scope))["conversations"]
    assert (entry["first"]["device_id"], entry["last"]["device_id"]) == ("Z", "😀2")


@pytest.fixture
async def mac(device: NewDevice) -> Device:
    mac = device("mac")
    for name in NAMES:
        mac.say("x", conversation=name)
    return await mac.push()


@pytest.mark.parametrize("limit", [1, 2, 5, 1_000])
async def test_R36_conversations_are_in_byte_order_and_paged_by_their_names(
    mac: Device, scope: str, limit: int
) -> None:
    """Also names that share their first 224 bytes, where an index entry ends."""
    expected = sorted(NAMES, key=str.encode)
    assert await names_by_page(mac.client, scope, limit) == expected == conversation_ids(fold(mac.ops))


async def test_a_page_goes_on_after_a_name_that_came_meanwhile(mac: Device, scope: str) -> None:
    page = await listed(mac.client, scope, limit=3)
    mac.say("x", conversation="\0\0")
    mac.say("x", conversation="A")
    await mac.push()
    rest = await listed(mac.client, scope, cursor=page["cursor"], limit=1_000)
    expected = sorted([*NAMES, "A"], key=str.encode)[3:]
    assert [entry["conversation_id"] for entry in rest["conversations"]] == expected


async def test_only_turns_count(device: NewDevice, scope: str) -> None:
    """A tombstone is no turn; what has no readable id belongs to the default conversation."""
    mac = device("mac")
    mac.say("x", conversation="gone", tombstone=True)
    mac.say("x", tombstone=True)
    mac.say("x", tombstone=1)
    for payload in ({"role": "user"}, {"conversation_id": 7}, "text", None):
        mac.write("conversation", payload)
    mac.write("knowledge", {"conversation_id": "k"})
    await mac.push()
    found = {entry["conversation_id"]: entry["turns"] for entry in (await listed(mac.client, scope))["conversations"]}
    folded = fold(mac.ops)
    assert found == {name: len(transcript(folded, name)) for name in conversation_ids(folded)} == {"": 4, "c": 1}


async def test_a_duplicate_counts_once_and_a_collection_forgets_no_conversation(mac: Device, scope: str) -> None:
    before = await listed(mac.client, scope, limit=1_000)
    await mac.offer(mac.ops)
    assert await listed(mac.client, scope, limit=1_000) == before
    await collect([mac])
    assert await listed(mac.client, scope, limit=1_000) == before


@pytest.mark.parametrize("cursor", ["", "x", "e30", "eyJuYW1lIjo3fQ", "W10"])
async def test_a_cursor_that_is_none_is_400(mac: Device, scope: str, cursor: str) -> None:
    url = f"/v1/scopes/{scope}/conversations"
    refused(await mac.client.get(url, params={"cursor": cursor}), "invalid_cursor")


class Watched:
    """The server in this process, with every statement that it sends to the database."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client, self.statements = client, list[str]()

    def note(self, query: Any) -> None:
        self.statements.append(query.query)

    async def count(self, path: str) -> int:
        self.statements.clear()
        read(await self.client.get(path))
        return len(self.statements)


@pytest.fixture
async def watched(server: RunningServer) -> AsyncIterator[Watched]:
    app = create_app(Settings(database_url=server.database_url, admin_token=ADMIN_TOKEN))
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://here", headers=headers) as client:
            watched = Watched(client)

            def listen(dbapi: Any, _record: Any, _proxy: Any) -> None:
                dbapi.driver_connection.add_query_logger(watched.note)

            event.listen(app.state.server.engine.sync_engine, "checkout", listen)
            yield watched


@pytest.mark.parametrize("path", ["conversations?limit=100", "transcript?conversation=c0", "resume?conversation=c0"])
async def test_R36_however_long_a_list_is_it_takes_as_many_statements(
    device: NewDevice, scope: str, watched: Watched, path: str
) -> None:
    mac = device("mac")
    url = f"/v1/scopes/{scope}/{path}"
    mac.say("x", conversation="c0")
    await mac.push()
    short = await watched.count(url)
    for number in range(1_000):
        mac.say("x", conversation=f"c{number}")
        mac.say("x", conversation="c0")
    await mac.push()
    assert 0 < short == await watched.count(url)


async def test_R36_no_payload_is_read_for_the_list(device: NewDevice, scope: str, watched: Watched) -> None:
    mac = device("mac")
    mac.say("x")
    await mac.push()
    assert await watched.count(f"/v1/scopes/{scope}/conversations")
    asked = " ".join(watched.statements).lower()
    assert "from stream" in asked
    assert not {"payload", "body", "op", "record"} & set(asked.replace(".", " ").replace(",", " ").split())
