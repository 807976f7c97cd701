"""Messages to go on with, and the report of what was repaired (server.md §11, car-sync.md §7.5)."""

from typing import Any

import httpx
import pytest

from foldpoint.fold import fold
from foldpoint.transcript import transcript
from tests.fixtures.devices import Device, NewDevice, collect
from tests.fixtures.vectors import text
from tests.wire.answers import read

CALL = [{"id": "t1", "name": "look", "arguments": {"at": 1.0}}]


async def resumed(client: httpx.AsyncClient, scope: str, **params: Any) -> Any:
    return read(await client.get(f"/v1/scopes/{scope}/resume", params={"conversation": "c", **params}))


@pytest.fixture
async def mac(device: NewDevice) -> Device:
    """A conversation in which a tool result has no call, two users speak in a row, and a call has no result."""
    mac = device("mac")
    mac.say("orphan", role="tool", tool_use_id="t0")
    mac.say("one")
    mac.say("two")
    mac.say("let me look", role="assistant", tool_calls=CALL)
    mac.say("found", role="tool", tool_use_id="t1", provenance="external", ok=True)
    mac.say("again", role="assistant", tool_calls=CALL * 2)
    mac.say("never mind")
    return await mac.push()


async def test_messages_are_what_a_provider_accepts_and_every_repair_is_reported(mac: Device, scope: str) -> None:
    answer = await resumed(mac.client, scope)
    assert answer.keys() == {"messages", "repairs"}
    assert text(answer["messages"]) == text(
        [
            {"role": "user", "content": "one\n\ntwo"},
            {"role": "assistant", "content": "let me look", "tool_calls": CALL, "local_last_resort": False},
            {"role": "tool_result", "tool_use_id": "t1", "content": "found", "provenance": "external", "ok": True},
            {"role": "assistant", "content": "again", "tool_calls": [], "local_last_resort": False},
            {"role": "user", "content": "never mind"},
        ]
    )
    assert answer["repairs"] == [
        {"repair": "orphan_result_dropped", "op_id": mac.ops[0].op_id, "tool_use_id": "t0"},
        {"repair": "merged", "op_id": mac.ops[2].op_id, "into": mac.ops[1].op_id},
        {"repair": "unanswered_calls_cleared", "op_id": mac.ops[5].op_id, "calls": 2},
    ]


async def test_repair_changes_nothing_that_is_stored(mac: Device, scope: str) -> None:
    first = await mac.client.get(f"/v1/scopes/{scope}/resume", params={"conversation": "c"})
    again = await mac.client.get(f"/v1/scopes/{scope}/resume", params={"conversation": "c"})
    assert first.content == again.content
    turns = read(await mac.client.get(f"/v1/scopes/{scope}/transcript", params={"conversation": "c"}))["turns"]
    assert turns == [turn.to_json() for turn in transcript(fold(mac.ops), "c")]


async def test_a_limit_takes_the_last_turns_before_they_are_repaired(mac: Device, scope: str) -> None:
    answer = await resumed(mac.client, scope, limit=3)
    assert [message["content"] for message in answer["messages"]] == ["again", "never mind"]
    assert [repair["op_id"] for repair in answer["repairs"]] == [mac.ops[4].op_id, mac.ops[5].op_id]
    assert await resumed(mac.client, scope, limit=7) == await resumed(mac.client, scope)


async def test_a_result_that_comes_late_is_taken_in(mac: Device, device: NewDevice, scope: str) -> None:
    phone = device("phone")
    phone.wall_ms = mac.ops[5].hlc.wall_ms
    phone.say("found again", role="tool", tool_use_id="t1")
    await phone.push()
    answer = await resumed(mac.client, scope)
    assert [message["role"] for message in answer["messages"]][-3:] == ["assistant", "tool_result", "user"]
    assert answer["messages"][-3]["tool_calls"] == CALL * 2


async def test_an_unknown_conversation_has_no_messages(mac: Device, scope: str) -> None:
    assert await resumed(mac.client, scope, conversation="nobody") == {"messages": [], "repairs": []}


async def test_after_a_collection_the_messages_are_what_they_were(mac: Device, scope: str) -> None:
    before = await resumed(mac.client, scope)
    await collect([mac], mac.ops[:4])
    assert await resumed(mac.client, scope) == before
