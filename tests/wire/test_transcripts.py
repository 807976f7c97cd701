"""Transcripts (server.md §11): the turns of one conversation in (hlc, op_id) order, whole or a window of them."""

from typing import Any

import httpx
import pytest

from app.services.reading.cursors import decode, encode
from foldpoint.fold import fold
from foldpoint.transcript import transcript
from tests.fixtures.devices import START_MS, Device, NewDevice, collect
from tests.fixtures.vectors import text
from tests.wire.answers import read, refused


async def window(client: httpx.AsyncClient, scope: str, conversation: str = "c", **params: Any) -> Any:
    asked = {"conversation": conversation, **params}
    return read(await client.get(f"/v1/scopes/{scope}/transcript", params=asked))


def contents(answer: Any) -> list[str]:
    return [turn["content"] for turn in answer["turns"]]


@pytest.fixture
async def mac(device: NewDevice) -> Device:
    """A device that said "0" to "9", with a tombstone and another conversation in between."""
    mac = device("mac")
    for number in range(10):
        mac.say(str(number))
        mac.say("gone", tombstone=True)
        mac.say("elsewhere", conversation="d")
    return await mac.push()


async def test_without_a_limit_a_transcript_is_whole(mac: Device, scope: str) -> None:
    answer = await window(mac.client, scope)
    assert answer.keys() == {"turns", "before", "after"}
    assert text(answer["turns"]) == text([turn.to_json() for turn in transcript(fold(mac.ops), "c")])
    assert (answer["before"], answer["after"]) == (None, None)
    assert await window(mac.client, scope, "nobody") == {"turns": [], "before": None, "after": None}


async def test_a_limit_gives_the_last_turns_and_the_way_back(mac: Device, scope: str) -> None:
    answer = await window(mac.client, scope, limit=4)
    assert (contents(answer), answer["after"]) == (["6", "7", "8", "9"], None)
    answer = await window(mac.client, scope, limit=4, before=answer["before"])
    assert contents(answer) == ["2", "3", "4", "5"]
    answer = await window(mac.client, scope, limit=4, before=answer["before"])
    assert (contents(answer), answer["before"]) == (["0", "1"], None)
    answer = await window(mac.client, scope, limit=5, after=answer["after"])
    assert contents(answer) == ["2", "3", "4", "5", "6"]
    answer = await window(mac.client, scope, limit=3, after=answer["after"])
    assert (contents(answer), answer["after"]) == (["7", "8", "9"], None)
    assert contents(await window(mac.client, scope, limit=2, before=answer["before"])) == ["5", "6"]
    answer = await window(mac.client, scope, limit=10)
    assert (contents(answer), answer["before"]) == ([str(n) for n in range(10)], None)


async def test_before_and_after_without_a_limit_give_all_that_lies_there(mac: Device, scope: str) -> None:
    middle = await window(mac.client, scope, limit=4)
    middle = await window(mac.client, scope, limit=2, before=middle["before"])
    assert contents(middle) == ["4", "5"]
    earlier = await window(mac.client, scope, before=middle["before"])
    assert (contents(earlier), earlier["before"]) == (["0", "1", "2", "3"], None)
    later = await window(mac.client, scope, after=middle["after"])
    assert (contents(later), later["after"]) == (["6", "7", "8", "9"], None)
    assert await window(mac.client, scope, before=earlier["before"] or middle["before"], after=middle["after"]) == {
        "turns": [], "before": None, "after": None,
    }  # fmt: skip


async def test_between_two_places_the_first_turns_after_the_one_come_first(mac: Device, scope: str) -> None:
    ends = [await place(mac, [op.hlc.to_json(), op.op_id]) for op in (mac.ops[3 * 1], mac.ops[3 * 7])]
    answer = await window(mac.client, scope, after=ends[0], before=ends[1], limit=3)
    assert contents(answer) == ["2", "3", "4"]
    answer = await window(mac.client, scope, after=answer["after"], before=ends[1], limit=3)
    assert contents(answer) == ["5", "6"]


async def test_R49_equal_stamps_are_in_order_of_device_id_then_op_id_as_numbers_and_bytes(
    device: NewDevice, scope: str
) -> None:
    devices = [device(name) for name in ("\uffff1", "b", "Z", "😀2", "a", "é3")]
    for each in devices:
        for wall_ms in (9, 9, 10, 100, 100):
            each.wall_ms = wall_ms
            each.say(each.name)
        for _ in range(12):
            each.wall_ms = 100
            each.say(each.name)
        await each.push()
    log = [op for each in devices for op in each.ops]
    turns = [turn.to_json() for turn in transcript(fold(log), "c")]
    client = devices[0].client
    assert (await window(client, scope))["turns"] == turns
    assert [turn["op_id"] for turn in turns] == [op.op_id for op in sorted(log, key=lambda op: (op.hlc, op.op_id))]
    found: list[Any] = []
    before: dict[str, str] = {}
    while True:
        page = await window(client, scope, limit=7, **before)
        found = page["turns"] + found
        if page["before"] is None:
            break
        before = {"before": page["before"]}
    assert found == turns


async def test_a_late_turn_with_an_old_stamp_stands_where_its_stamp_says(
    mac: Device, device: NewDevice, scope: str
) -> None:
    phone = device("phone")
    phone.wall_ms = START_MS + 4
    phone.say("late")
    await phone.push()
    assert contents(await window(mac.client, scope))[:3] == ["0", "1", "late"]


async def test_after_a_collection_a_transcript_is_what_it_was(mac: Device, scope: str) -> None:
    """Some turns are base rows then and some are ops."""
    before = await window(mac.client, scope)
    await mac.push()
    assert await collect([mac], mac.ops[:14]) == {"mac": 14}
    assert await window(mac.client, scope) == before
    page = await window(mac.client, scope, limit=6)
    assert contents(page) == ["4", "5", "6", "7", "8", "9"]
    assert contents(await window(mac.client, scope, limit=6, before=page["before"])) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("name", ["", "\0", "a/b?&#", "é", "e\u0301", "x" * 30_000, "😀" * 500])
async def test_a_conversation_id_may_be_any_string(device: NewDevice, scope: str, name: str) -> None:
    mac = device("mac")
    mac.say("here", conversation=name)
    mac.say("there", conversation=name + "\0")
    await mac.push()
    answer = await window(mac.client, scope, name)
    assert contents(answer) == ["here"]
    assert answer["turns"][0]["conversation_id"] == name


async def place(mac: Device, at: Any) -> str:
    """A cursor of the scope at a place that nobody was given."""
    given = (await window(mac.client, mac.scope, limit=1))["before"]
    return encode([*decode(given)[:2], at])


STAMP = {"wall_ms": 1, "counter": 0, "device_id": "mac"}
NO_PLACES: list[Any] = [
    {}, [], [STAMP, "op-1"], [STAMP, "op-" + "G" * 32], [None, ""], [{**STAMP, "wall_ms": 2**63}, "op-" + "0" * 32],
    [{**STAMP, "wall_ms": -1}, "op-" + "0" * 32], [{**STAMP, "counter": 2**32}, "op-" + "0" * 32],
    [{"wall_ms": 1}, "op-" + "0" * 32],
]  # fmt: skip
GARBAGE = ["", "x", "é", encode({}), encode([]), *(encode(["e", 1, at]) for at in NO_PLACES)]


@pytest.mark.parametrize("cursor", GARBAGE)
@pytest.mark.parametrize("end", ["before", "after"])
async def test_a_cursor_that_is_none_is_400(mac: Device, scope: str, end: str, cursor: str) -> None:
    params = {"conversation": "c", end: cursor}
    refused(await mac.client.get(f"/v1/scopes/{scope}/transcript", params=params), "invalid_cursor")


@pytest.mark.parametrize("limit", ["0", "-1", "x", "1.5", str(2**63), str(10**30)])
@pytest.mark.parametrize("path", ["transcript", "resume"])
async def test_a_limit_is_a_positive_number(mac: Device, scope: str, path: str, limit: str) -> None:
    params = {"conversation": "c", "limit": limit}
    refused(await mac.client.get(f"/v1/scopes/{scope}/{path}", params=params), "invalid_request")


async def test_a_conversation_must_be_named(mac: Device, scope: str) -> None:
    for path in ("transcript", "resume"):
        problem = refused(await mac.client.get(f"/v1/scopes/{scope}/{path}"), "invalid_request")
        assert problem["path"] == "query.conversation"


async def test_a_made_up_place_is_as_good_as_any(mac: Device, scope: str) -> None:
    at = [{**STAMP, "wall_ms": START_MS + 15}, "op-" + "0" * 32]
    assert contents(await window(mac.client, scope, after=await place(mac, at), limit=2)) == ["5", "6"]
