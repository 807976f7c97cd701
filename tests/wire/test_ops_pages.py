"""Reading ops page by page (server.md §4): the cursor is a frontier, so nothing is ever passed over."""

from typing import Any

import httpx
import orjson
import pytest

from app.services.reading.cursors import decode, encode
from foldpoint.op import Op
from foldpoint.op_text import read_op
from tests.fixtures.devices import START_MS, Device, NewDevice, collect, in_order, op_texts
from tests.wire.answers import read, refused


async def page(client: httpx.AsyncClient, scope: str, **params: Any) -> httpx.Response:
    return await client.get(f"/v1/scopes/{scope}/ops", params=params)


async def read_all(client: httpx.AsyncClient, scope: str, cursor: str | None = None, **params: Any) -> list[list[Op]]:
    """The pages up to the one that has caught up."""
    pages = []
    while True:
        response = await page(client, scope, **params, **({} if cursor is None else {"cursor": cursor}))
        pages.append([read_op(text) for text in op_texts(response)])
        cursor = read(response)["cursor"]
        if read(response)["caught_up"]:
            return pages
        assert pages[-1]


@pytest.fixture
async def devices(device: NewDevice) -> list[Device]:
    """Three devices whose stamps interleave, a hundred ops in all."""
    names = {"b": 50, "a": 30, "c d": 20}
    made = [device(name) for name in names]
    for each, count in zip(made, names.values(), strict=True):
        each.wall_ms = START_MS + count
        each.facts(count)
        await each.push()
    return made


def log_of(devices: list[Device]) -> list[Op]:
    return in_order(op for each in devices for op in each.ops)


async def test_a_page_has_the_ops_as_the_crate_emits_them_a_cursor_and_whether_it_caught_up(
    devices: list[Device], scope: str
) -> None:
    response = await page(devices[0].client, scope)
    assert op_texts(response) == [op.text() for op in log_of(devices)]
    assert read(response).keys() == {"ops", "cursor", "caught_up"}
    assert read(response)["caught_up"] is True
    again = await page(devices[0].client, scope, cursor=read(response)["cursor"])
    assert (read(again)["ops"], read(again)["caught_up"]) == ([], True)


@pytest.mark.parametrize("limit", [1, 3, 7, 99, 100, 101, 5_000])
async def test_the_pages_together_are_all_ops_once_and_each_is_a_prefix_of_every_chain(
    devices: list[Device], scope: str, limit: int
) -> None:
    pages = await read_all(devices[0].client, scope, limit=limit)
    assert all(len(ops) <= limit for ops in pages)
    ops = [op for ops in pages for op in ops]
    assert sorted(op.op_id for op in ops) == sorted(op.op_id for op in log_of(devices))
    for each in devices:
        assert [op.seq for op in ops if op.device_id == each.name] == list(range(len(each.ops)))
    assert all(ops == in_order(ops) for ops in pages)


async def test_R01_an_op_that_comes_with_an_old_stamp_still_reaches_a_reader_that_is_past_it(
    devices: list[Device], device: NewDevice, scope: str
) -> None:
    client = devices[0].client
    cursor = read(await page(client, scope))["cursor"]
    late = device("late")
    late.wall_ms = 5
    late.facts(2)
    await late.push()
    devices[1].facts(1)
    await devices[1].push()
    (ops,) = await read_all(client, scope, cursor)
    assert [op.op_id for op in ops] == [op.op_id for op in (*late.ops, devices[1].ops[-1])]


async def test_R07_a_cursor_covers_exactly_its_page_and_can_be_used_again(devices: list[Device], scope: str) -> None:
    client = devices[0].client
    first = read(await page(client, scope, limit=10))
    one = await page(client, scope, limit=10, cursor=first["cursor"])
    pushed = devices[0].facts(1)
    assert read(await devices[0].offer(pushed)).keys() == {"accepted", "deduped"}
    two = await page(client, scope, limit=10, cursor=first["cursor"])
    assert op_texts(one) == op_texts(two)
    rest = await read_all(client, scope, first["cursor"], limit=7)
    assert len(first["ops"]) + sum(map(len, rest)) == len(log_of(devices))


async def test_lines_carry_the_cursor_in_headers(devices: list[Device], scope: str) -> None:
    client, lines = devices[0].client, {"Accept": "application/x-ndjson"}
    url = f"/v1/scopes/{scope}/ops"
    first = await client.get(url, params={"limit": 60}, headers=lines)
    assert first.headers["content-type"].startswith("application/x-ndjson")
    assert first.headers["foldpoint-caught-up"] == "false"
    as_json = await page(client, scope, limit=60)
    assert first.content == b"".join(text + b"\n" for text in op_texts(as_json))
    assert first.headers["foldpoint-cursor"] == read(as_json)["cursor"]
    rest = await client.get(url, params={"cursor": first.headers["foldpoint-cursor"]}, headers=lines)
    assert len(first.content.splitlines()) + len(rest.content.splitlines()) == 100
    assert rest.headers["foldpoint-caught-up"] == "true"
    none = await client.get(url, params={"cursor": rest.headers["foldpoint-cursor"]}, headers=lines)
    assert (none.content, none.headers["foldpoint-caught-up"]) == (b"", "true")


@pytest.mark.parametrize("limit", [0, -1, 5_001, "x", 2**70])
async def test_a_limit_outside_1_to_5000_is_refused(devices: list[Device], scope: str, limit: Any) -> None:
    assert refused(await page(devices[0].client, scope, limit=limit), "invalid_request")["path"] == "query.limit"


GARBAGE = [
    "", "x", "%%%", "é", "\0", "A" * 5_000, encode(None), encode({}), encode([]), encode([1, 2, {}]), encode(["e", 1]),
    *(encode(["e", 1, reached]) for reached in ({"x": 1}, {"1": -1}, {"1": 1.5}, {"1": 2**63}, {"0": 1}, {"1": True})),
    encode(["e", 1, {str(2**31): 1}]), encode(["e", "1", {}]), encode(["e", 1, None]),
]  # fmt: skip


@pytest.mark.parametrize("cursor", GARBAGE)
async def test_R06_a_cursor_that_is_none_is_400(devices: list[Device], scope: str, cursor: str) -> None:
    refused(await page(devices[0].client, scope, cursor=cursor), "invalid_cursor")
    refused(await page(devices[0].client, scope, cursor=cursor, device="a"), "invalid_cursor")


def made_up(cursor: str, epoch: str | None = None, scope: int | None = None, above: int = 0) -> str:
    """A well-formed cursor that nobody was given."""
    of_epoch, of_scope, reached = decode(cursor)
    return encode([epoch or of_epoch, scope or of_scope, {number: seq + above for number, seq in reached.items()}])


async def test_R06_a_cursor_that_no_page_gave_is_410_and_says_where_to_begin(devices: list[Device], scope: str) -> None:
    admin = devices[0].client
    cursor = read(await page(admin, scope))["cursor"]
    other = Device(admin, scope + "-2", "b")
    other.facts(3)
    await other.push()
    foreign = read(await page(admin, other.scope))["cursor"]
    unknown = encode([*decode(cursor)[:2], {"2147483647": 0}])
    wrong = {
        "of another scope": (foreign, "cursor_gone"),
        "of no scope": (made_up(cursor, scope=2**40), "cursor_gone"),
        "above every head": (made_up(cursor, above=1), "cursor_gone"),
        "far above every head": (made_up(cursor, above=2**62), "cursor_gone"),
        "of an unknown device": (unknown, "cursor_gone"),
        "of another server epoch": (made_up(cursor, epoch="0" * 32), "server_restored"),
    }
    for case, (text, code) in wrong.items():
        response = await page(admin, scope, cursor=text)
        problem = refused(response, code)
        assert (problem["checkpoint"], problem["cursor"]) == (None, None), case
        assert response.headers["cache-control"] == "no-store"
        assert problem["advice"]
        assert other.ops[0].op_id not in response.text


async def follow(client: httpx.AsyncClient, scope: str, problem: dict[str, Any]) -> tuple[Any, list[list[Op]]]:
    """Do what a 410 says: the checkpoint it names, and the ops from its cursor on."""
    checkpoint = await client.get(f"/v1/scopes/{scope}/checkpoints/{problem['checkpoint']}")
    return read(checkpoint), await read_all(client, scope, problem["cursor"], limit=5)


async def test_R05_following_a_410_once_reaches_the_head(devices: list[Device], scope: str) -> None:
    client = devices[0].client
    early = read(await page(client, scope, limit=10))["cursor"]
    covered = [op for op in log_of(devices) if op.seq < 25]
    await collect(devices, covered)
    gone = {
        "an early cursor": early,
        "no cursor": None,
        "one of another epoch": made_up(early, epoch="0" * 32),
        "one above the heads": made_up(early, above=2**40),
    }
    for case, cursor in gone.items():
        for _ in range(3):
            response = await page(client, scope, **({} if cursor is None else {"cursor": cursor}))
            assert response.status_code == 410, case
            assert response.headers["cache-control"] == "no-store"
            assert response.json()["cursor"] != cursor
            checkpoint, pages = await follow(client, scope, response.json())
            tail = [op for ops in pages for op in ops]
            frontier = {name: entry["seq"] for name, entry in checkpoint["frontier"].items()}
            missed = [op for op in log_of(devices) if op.seq > frontier.get(op.device_id, -1)]
            assert sorted(op.op_id for op in tail) == sorted(op.op_id for op in missed), case


async def test_a_reader_ahead_of_the_checkpoint_keeps_its_place(devices: list[Device], scope: str) -> None:
    client = devices[0].client
    cursor = read(await page(client, scope))["cursor"]
    await collect(devices, [op for op in log_of(devices) if op.seq < 25])
    devices[0].facts(2)
    await devices[0].push()
    (ops,) = await read_all(client, scope, cursor)
    assert [op.op_id for op in ops] == [op.op_id for op in devices[0].ops[-2:]]


async def test_an_empty_scope_is_caught_up(admin: httpx.AsyncClient, scope: str) -> None:
    await admin.post(f"/sync/{scope}/devices/mac/ops", content=b"[]")
    answer = read(await page(admin, scope))
    assert (answer["ops"], answer["caught_up"]) == ([], True)
    assert orjson.loads((await page(admin, scope, cursor=answer["cursor"])).content)["caught_up"] is True
