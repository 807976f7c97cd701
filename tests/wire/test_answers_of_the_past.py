"""What was said, and what had committed, at a frontier (server.md §5, §6)."""

from typing import Any

import httpx
import orjson
import pytest

from tests.fixtures.devices import Device, NewDevice, collect, envelope
from tests.wire.answers import read, refused


def at(**frontier: int) -> dict[str, str]:
    return {"at": orjson.dumps(frontier).decode()}


async def transcript(device: Device, frontier: dict[str, str], **params: Any) -> Any:
    params = {"conversation": "c", **frontier, **params}
    return read(await device.client.get(f"/v1/scopes/{device.scope}/transcript", params=params))


async def committed(client: httpx.AsyncClient, scope: str, run: str, frontier: dict[str, str]) -> httpx.Response:
    return await client.get(f"/v1/scopes/{scope}/committed-run", params={"agent": "ada", "run": run, **frontier})


@pytest.fixture
async def both(device: NewDevice) -> tuple[Device, Device]:
    mac, phone = device("mac"), device("phone")
    for n in range(4):
        mac.say(f"mac {n}")
        phone.say(f"phone {n}")
    for each in (mac, phone):
        await each.push()
    return mac, phone


async def test_a_transcript_of_the_past_is_paged_inside_that_past(both: tuple[Device, Device]) -> None:
    mac, _ = both
    then = at(mac=2, phone=1)
    whole = await transcript(mac, then)
    said = [turn["content"] for turn in whole["turns"]]
    assert said == ["mac 0", "phone 0", "mac 1", "phone 1", "mac 2"]
    tail = await transcript(mac, then, limit=2)
    assert [turn["content"] for turn in tail["turns"]] == said[-2:]
    before = await transcript(mac, then, limit=2, before=tail["before"])
    assert [turn["content"] for turn in before["turns"]] == said[1:3]
    after = await transcript(mac, then, limit=9, after=before["after"])
    assert [turn["content"] for turn in after["turns"]] == said[3:]
    assert (await transcript(mac, at()))["turns"] == []
    resumed = await mac.client.get(f"/v1/scopes/{mac.scope}/resume", params={"conversation": "c", **at(phone=0)})
    assert [message["content"] for message in read(resumed)["messages"]] == ["phone 0"]


async def test_after_a_collection_the_past_is_told_where_it_is_exact(both: tuple[Device, Device]) -> None:
    mac, phone = both
    await collect([mac, phone], [*mac.ops[:3], *phone.ops[:3]])
    said = [turn["content"] for turn in (await transcript(mac, at(mac=2, phone=3)))["turns"]]
    assert said == ["mac 0", "phone 0", "mac 1", "phone 1", "mac 2", "phone 2", "phone 3"]
    path = f"/v1/scopes/{mac.scope}/transcript"
    problem = refused(
        await mac.client.get(path, params={"conversation": "c", **at(mac=1, phone=3)}), "frontier_collected"
    )
    assert problem["frontiers"] == [{"mac": 2, "phone": 2}]


@pytest.fixture
async def runs(device: NewDevice) -> Device:
    mac = device("mac")
    mac.intend("r", "pending", epoch=1)
    mac.intend("r", "failed", epoch=1)
    mac.intend("r", "pending", epoch=2)
    mac.intend("r", "committed", epoch=2)
    mac.intend("other", "pending", epoch=3)
    mac.intend("r", "pending", epoch=1, agent="eve")
    return await mac.push()


async def test_a_run_is_told_as_it_was(runs: Device, scope: str) -> None:
    statuses = []
    for seq in range(-1, 6):
        frontier = at(mac=seq) if seq >= 0 else at()
        statuses.append(read(await committed(runs.client, scope, "r", frontier))["status"])
    assert statuses == ["not_started", "in_doubt", "failed", "in_doubt", "committed", "committed", "committed"]
    answer = read(await committed(runs.client, scope, "r", at(mac=2)))
    assert (answer["record"], answer["intent"]["op_id"]) == (None, runs.ops[2].op_id)
    assert read(await committed(runs.client, scope, "r", at(mac=99)))["record"]["op_id"] == runs.ops[3].op_id


async def test_once_ops_are_dropped_only_that_it_committed_is_told(runs: Device, scope: str) -> None:
    """`failed` may have been in doubt, and `not_started` begun: what would tell is gone."""
    await collect([runs])
    assert read(await committed(runs.client, scope, "r", at(mac=5)))["status"] == "committed"
    refused(await committed(runs.client, scope, "other", at(mac=5)), "frontier_collected")
    refused(await committed(runs.client, scope, "never", at(mac=5)), "frontier_collected")
    assert read(await committed(runs.client, scope, "other", {}))["status"] == "in_doubt"


async def test_the_newest_intent_of_a_past_is_the_newest_that_is_kept_of_it(device: NewDevice, scope: str) -> None:
    mac, phone = device("mac"), device("phone")
    phone.wall_ms -= 1_000
    first, second = mac.intend("r", "pending", epoch=1), mac.intend("r", "pending", epoch=2)
    mac.intend("r", "committed", epoch=2)
    await mac.push()

    async def told(**frontier: int) -> Any:
        return read(await committed(mac.client, scope, "r", at(**frontier)))

    before = await told(mac=2)
    assert before["intent"]["op_id"] == second.op_id
    await collect([mac])
    assert await told(mac=2) == before
    phone.intend("r", "pending", epoch=3)
    later = mac.intend("r", "failed", epoch=1)
    for each in (mac, phone):
        await each.push()
    assert await told(mac=2) == before
    assert await told(mac=2, phone=0) == before
    assert (await told(mac=3))["intent"]["op_id"] == later.op_id
    mac.intend("r", "pending", epoch=2)
    await mac.push()
    assert (await told(mac=2))["intent"]["op_id"] == first.op_id


async def test_of_closed_intents_nothing_is_concluded_about_the_past_either(device: NewDevice, scope: str) -> None:
    mac = device("mac")
    mac.write("intent", envelope())
    await mac.push()
    refused(await committed(mac.client, scope, "r", at(mac=0)), "sealed_scope", 503)


async def test_a_difference_has_what_came_what_changed_and_what_went(device: NewDevice, scope: str) -> None:
    mac = device("mac")
    mac.write("knowledge", {"id": "k"})
    mac.write("registry:config", {"id": "a", "n": 1})
    mac.intend("r1", "pending", epoch=1)
    mac.write("registry:config", {"id": "a", "n": 2})
    mac.intend("r2", "committed", epoch=2)
    mac.say("hello")
    await mac.push()
    params = {"from": '{"mac":2}', "to": '{"mac":5}'}
    answer = read(await mac.client.get(f"/v1/scopes/{scope}/diff", params=params))
    assert (answer["from"], answer["to"]) == ({"mac": 2}, {"mac": 5})
    assert [(one.get("log"), one.get("view"), one["key"]) for one in answer["added"]] == [
        ("conversation", None, "op:" + mac.ops[5].op_id), (None, "runs", "id:r2"), (None, "committed_runs", "id:r2"),
    ]  # fmt: skip
    (changed,) = answer["changed"]
    assert (changed["registry"], changed["before"]["payload"]["n"], changed["after"]["payload"]["n"]) == (
        "config",
        1,
        2,
    )
    assert [(one["view"], one["key"]) for one in answer["gone"]] == [("runs", "id:r1")]
    assert answer["fences"] == [{"agent_id": "ada", "before": 1, "after": 2}]
    back = read(await mac.client.get(f"/v1/scopes/{scope}/diff", params={"from": params["to"], "to": params["from"]}))
    assert (back["added"], back["gone"]) == (answer["gone"], answer["added"])
    for name in ("from", "to"):
        refused(await mac.client.get(f"/v1/scopes/{scope}/diff", params={**params, name: "[]"}), "invalid_request")
