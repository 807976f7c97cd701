"""Entries of a queue are claimed exactly once, whatever the fold says later (journal.md §8.4)."""

import asyncio
from typing import Any

import asyncpg
import httpx
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from app.services.verification.verifying import verify
from tests.fixtures.devices import Device, NewDevice
from tests.fixtures.journals import append, claim, message, path, queued, state
from tests.fixtures.projections import enqueue, journal, number_of
from tests.wire.answers import read, refused


async def with_queue(device: NewDevice, *texts: str) -> Device:
    mac = device("mac")
    for text in texts:
        enqueue(mac, text)
    return await mac.push()


async def claimed(client: httpx.AsyncClient, scope: str, count: int = 1, **more: Any) -> list[str]:
    """The texts that a claim is handed."""
    return [entry["text"] for entry in read(await claim(client, scope, count, **more))["entries"]]


async def set_clock_after(mac: Device) -> None:
    """Let what a device writes next sort above all there is."""
    head = read(await mac.client.get(path(mac.scope)))["journals"][0]["last"]
    mac.wall_ms = head["wall_ms"] + 1


async def test_a_claim_hands_out_the_oldest_and_tells_the_devices(device: NewDevice, scope: str) -> None:
    mac = await with_queue(device, "one", "two", "three")
    answer = read(await claim(mac.client, scope, 2))
    assert [entry["text"] for entry in answer["entries"]] == ["one", "two"]
    assert [entry["id"] for entry in answer["entries"]] == [op.payload["id"] for op in mac.ops[:2]]  # type: ignore[index, call-overload]
    assert answer["op"]["payload"]["entry"] == {"op": "dequeue", "queue": "steer", "count": 2}
    assert answer["op"]["payload"]["seen"] == {"mac": list(mac.ops[-1].hlc[:2])}
    assert (await state(mac.client, scope))["steer_queue"] == ["three"]
    assert await claimed(mac.client, scope, 9, writer="other") == ["three"]
    assert read(await claim(mac.client, scope)) == {"entries": [], "op": None}
    found = await state(mac.client, scope)
    assert (found["steer_queue"], found["double_delivery"], found["records"]) == ([], [], 5)


async def test_queues_and_sessions_are_apart(admin: httpx.AsyncClient, scope: str) -> None:
    read(await append(admin, scope, queued("a"), queued("b", "follow_up")))
    read(await append(admin, scope, queued("c"), session="other"))
    assert await claimed(admin, scope, 5, queue="follow_up") == ["b"]
    assert await claimed(admin, scope, 5, session="other") == ["c"]
    assert await claimed(admin, scope, 5, session="nobody's") == []
    assert await claimed(admin, scope, 5) == ["a"]


async def test_an_answer_that_was_lost_is_had_again(admin: httpx.AsyncClient, scope: str) -> None:
    read(await append(admin, scope, *(queued(str(n)) for n in range(4))))
    first = await claim(admin, scope, 2, key="k")
    assert (await claim(admin, scope, 2, key="k")).content == first.content
    refused(await claim(admin, scope, 1, key="k"), "invalid_request")
    assert await claimed(admin, scope, 2, key="k2") == ["2", "3"]
    assert await claimed(admin, scope, 2, key="k3") == []
    read(await append(admin, scope, queued("late")))
    assert await claimed(admin, scope, 2, key="k3") == []
    assert await claimed(admin, scope, 2, key="k4") == ["late"]


async def test_what_comes_late_below_a_claim_is_handed_out_by_the_next(device: NewDevice, scope: str) -> None:
    mac, late = await with_queue(device, "one", "two"), device("late")
    late.wall_ms -= 1000
    enqueue(late, "early")
    assert await claimed(mac.client, scope) == ["one"]
    await late.push()
    assert (await state(mac.client, scope))["steer_queue"] == ["early", "two"]
    assert await claimed(mac.client, scope, 5) == ["early", "two"]


async def test_what_a_device_takes_too_is_told_and_never_handed_out_again(device: NewDevice, scope: str) -> None:
    mac = await with_queue(device, "one", "two")
    phone = device("phone")
    phone.wall_ms = mac.wall_ms
    seen = {"mac": list(mac.ops[-1].hlc[:2])}
    journal(phone, {"op": "dequeue", "queue": "steer", "count": 1}, seen=seen)
    assert await claimed(mac.client, scope) == ["one"]
    await phone.push()
    found = await state(mac.client, scope)
    assert [(double["text"], len(double["dequeues"])) for double in found["double_delivery"]] == [("one", 2)]
    assert await claimed(mac.client, scope, 5) == ["two"]


async def test_what_its_author_writes_again_is_not_handed_out_again_and_what_it_displaced_is(
    device: NewDevice, scope: str
) -> None:
    """The same payload is the same entry, at a later place. So the claim's dequeue of one entry took the next."""
    mac = await with_queue(device, "one", "two")
    assert await claimed(mac.client, scope) == ["one"]
    await set_clock_after(mac)
    enqueue(mac, "one")
    await mac.push()
    assert (await state(mac.client, scope))["steer_queue"] == ["one"]
    answer = read(await claim(mac.client, scope, 9))
    assert [entry["text"] for entry in answer["entries"]] == ["two"]
    assert answer["op"]["payload"]["entry"]["count"] == 0
    assert await claimed(mac.client, scope, 9) == []
    enqueue(mac, "three")
    await mac.push()
    assert await claimed(mac.client, scope) == ["three"]
    assert (await state(mac.client, scope))["steer_queue"] == []


async def test_many_that_were_handed_out_and_wait_again_are_passed_over(device: NewDevice, scope: str) -> None:
    mac = await with_queue(device, *(str(n) for n in range(300)))
    assert len(await claimed(mac.client, scope, 300)) == 300
    await set_clock_after(mac)
    for n in range(300):
        enqueue(mac, str(n))
    enqueue(mac, "new")
    await mac.push()
    assert (await claimed(mac.client, scope)) == ["new"]
    assert (await claimed(mac.client, scope)) == []


async def test_claims_outlive_collection(device: NewDevice, scope: str, database: asyncpg.Connection) -> None:
    mac = await with_queue(device, "one", "two")
    read(await claim(mac.client, scope))
    await set_clock_after(mac)
    enqueue(mac, "one")
    await mac.push()
    read(await mac.client.post(f"/v1/scopes/{scope}/gc"))
    assert await claimed(mac.client, scope, 9) == ["two"]
    kept = "select count(*) from journal_claim c join scope s on s.id = c.scope where s.slug = $1"
    assert await database.fetchval(kept, scope) == 2


async def test_only_the_server_says_what_was_claimed(device: NewDevice, scope: str) -> None:
    mac = await with_queue(device, "one")
    payload = mac.ops[0].payload
    assert isinstance(payload, dict)
    source = {"claim": [payload["id"]], "nonce": ""}
    phone = device("phone")
    journal(phone, {"op": "dequeue", "queue": "follow_up", "count": 1}, source=source)
    await phone.push()
    assert await claimed(mac.client, scope, 9) == ["one"]


async def test_all_at_once_each_entry_is_handed_out_once(admin: httpx.AsyncClient, scope: str) -> None:
    read(await append(admin, scope, *(queued(str(n)) for n in range(40))))
    answers = await asyncio.gather(*(claimed(admin, scope, 3, writer=f"w{n % 7}") for n in range(20)))
    handed = [text for texts in answers for text in texts]
    assert sorted(handed, key=int) == [str(n) for n in range(40)]


async def test_a_rewound_message_has_nothing_to_do_with_queues(admin: httpx.AsyncClient, scope: str) -> None:
    read(await append(admin, scope, message("x"), queued("a"), {"op": "rewind", "to": 0}, seen="now"))
    assert await claimed(admin, scope, 5) == ["a"]


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "none": ({"count": 0}, "count"),
    "too many": ({"count": 1_001}, "count"),
    "no number": ({"count": "1"}, "count"),
    "a double": ({"count": 1.0}, "count"),
    "no queue": ({"queue": None}, "queue"),
    "no session": ({"session": ""}, "session"),
    "no writer": ({"writer": "a b"}, "writer"),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_claim_that_cannot_be_read_is_refused(admin: httpx.AsyncClient, scope: str, name: str) -> None:
    more, where = BAD[name]
    assert refused(await claim(admin, scope, **more), "invalid_request")["path"] == where
    refused(await admin.get(path(scope)), "not_found")


async def test_a_claim_that_is_not_noted_is_a_fault(
    device: NewDevice, scope: str, database: asyncpg.Connection, engine_behind: AsyncEngine
) -> None:
    mac = await with_queue(device, "one")
    read(await claim(mac.client, scope))
    number = await number_of(engine_behind, scope)
    assert [fault async for fault in verify(engine_behind, number)] == []
    await database.execute("delete from journal_claim where scope = $1", number)
    (fault,) = [fault async for fault in verify(engine_behind, number)]
    assert "handed out" in fault
