"""Did this run commit? (server.md §6). A wrong answer here sends the email twice."""

from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from foldpoint.op import Op
from tests.fixtures.devices import START_MS, Device, NewDevice, collect
from tests.wire.answers import read, refused


async def ask(client: httpx.AsyncClient, scope: str, run: str = "r", agent: str = "ada") -> Any:
    return read(await client.get(f"/v1/scopes/{scope}/committed-run", params={"agent": agent, "run": run}))


async def holder(client: httpx.AsyncClient, scope: str, run: str = "r", agent: str = "ada") -> Any:
    return read(await client.get(f"/v1/scopes/{scope}/intent", params={"agent": agent, "run": run}))["record"]


def record(op: Op) -> Any:
    return {"op_id": op.op_id, "hlc": op.hlc.to_json(), "payload": op.payload}


#: Intents of one run, as (status, epoch) in the order of their stamps, and what they come to:
#: the status, and which of them is shown as the record and which as the newest intent.
STORIES: dict[str, tuple[Sequence[tuple[str, int]], str, int | None, int | None]] = {
    "nothing was seen": ([], "not_started", None, None),
    "a pending": ([("pending", 1)], "in_doubt", None, 0),
    "a commit": ([("pending", 1), ("committed", 1)], "committed", 1, 0),
    "a commit without a pending": ([("committed", 1)], "committed", 0, None),
    "a failure": ([("pending", 1), ("failed", 1)], "failed", None, 1),
    "a failure without a pending": ([("failed", 1)], "failed", None, 0),
    "a pending after a failure": ([("pending", 1), ("failed", 1), ("pending", 1)], "in_doubt", None, 2),
    "a pending at a later epoch": ([("pending", 1), ("failed", 1), ("pending", 2)], "in_doubt", None, 2),
    "a failure at another epoch": ([("pending", 1), ("pending", 2), ("failed", 2)], "in_doubt", None, 2),
    "a failure at each epoch": (
        [("pending", 1), ("pending", 2), ("failed", 2), ("failed", 1)], "failed", None, 3,
    ),
    "a failure below the pending's epoch": ([("failed", 3), ("pending", 1)], "in_doubt", None, 1),
    "a commit below a failure": ([("committed", 1), ("failed", 9)], "committed", 0, 1),
    "two commits": ([("committed", 2), ("committed", 1)], "committed", 0, None),
    "a status nobody knows": ([("running", 1)], "in_doubt", None, 0),
    "a commit in other letters": ([("Committed", 1)], "in_doubt", None, 0),
}  # fmt: skip


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("backwards", [False, True], ids=["as stamped", "the last first"])
async def test_R41_the_status_of_a_run(device: NewDevice, scope: str, story: str, *, backwards: bool) -> None:
    """Whatever order the intents come in: each is of a device of its own."""
    intents, status, committed, newest = STORIES[story]
    devices = [device(f"d{number}") for number in range(len(intents))]
    for number, (each, (said, epoch)) in enumerate(zip(devices, intents, strict=True)):
        each.wall_ms = START_MS + number
        each.intend("r", said, epoch)
    bystander = device("bystander")
    bystander.intend("other", "pending")
    for each in [bystander, *(reversed(devices) if backwards else devices)]:
        await each.push()
    assert await ask(bystander.client, scope) == {
        "status": status,
        "record": None if committed is None else record(devices[committed].ops[0]),
        "intent": None if newest is None else record(devices[newest].ops[0]),
    }


async def test_a_fenced_pending_holds_nothing_and_still_leaves_the_run_in_doubt(device: NewDevice, scope: str) -> None:
    mac = device("mac")
    stale, current = mac.intend("r", "pending", 1), mac.intend("other", "pending", 5)
    late = mac.intend("late", "pending", 2)
    await mac.push()
    assert await holder(mac.client, scope) is None
    assert await holder(mac.client, scope, "late") is None
    assert await holder(mac.client, scope, "other") == record(current)
    assert await ask(mac.client, scope) == {"status": "in_doubt", "record": None, "intent": record(stale)}
    assert await ask(mac.client, scope, "late") == {"status": "in_doubt", "record": None, "intent": record(late)}
    mac.intend("r", "failed", 1)
    await mac.push()
    assert (await ask(mac.client, scope))["status"] == "failed"


async def test_the_newest_intent_is_the_one_of_the_greatest_stamp(device: NewDevice, scope: str) -> None:
    mac, phone = device("mac"), device("phone")
    mac.intend("r", "pending", 3)
    phone.wall_ms = START_MS + 5
    newest = phone.intend("r", "pending", 2)
    for each in (phone, mac):
        await each.push()
    assert (await ask(mac.client, scope))["intent"] == record(newest)


async def test_after_a_collection_nothing_seen_is_forgotten(device: NewDevice, scope: str) -> None:
    mac = device("mac")
    for run, said in (("a", "pending"), ("b", "failed"), ("c", "committed"), ("d", "pending")):
        mac.intend(run, said, 1)
    mac.intend("e", "pending", 9)
    await mac.push()
    before = {run: await ask(mac.client, scope, run) for run in "abcdef"}
    assert [before[run]["status"] for run in "abcdef"] == [
        "in_doubt", "failed", "committed", "in_doubt", "in_doubt", "not_started",
    ]  # fmt: skip
    await collect([mac])
    assert {run: await ask(mac.client, scope, run) for run in "abcdef"} == before


async def test_agents_do_not_mix_and_ids_may_be_any_string(device: NewDevice, scope: str) -> None:
    mac = device("mac")
    names = ["", "\0", "ada", "ada\0", "é", "e\u0301", "a/b", "x" * 20_000, "x" * 20_001]
    for agent in names:
        for run in names[:6]:
            if agent != run:
                mac.intend(run, "committed", agent=agent)
    mac.write("intent", {"status": "committed", "epoch": 1, "agent_id": 7, "id": "loose"})
    await mac.push()
    for agent in names:
        found = [(await ask(mac.client, scope, run, agent))["status"] for run in names[:6]]
        assert found == ["not_started" if agent == run else "committed" for run in names[:6]], agent[:9]
    assert (await ask(mac.client, scope, "loose", ""))["status"] == "committed"


async def lookup(client: httpx.AsyncClient, scope: str, pairs: Sequence[tuple[str, str]]) -> httpx.Response:
    runs = [{"agent_id": agent, "run_id": run} for agent, run in pairs]
    return await client.post(f"/v1/scopes/{scope}/committed-runs/lookup", json={"runs": runs})


async def test_a_thousand_runs_are_looked_up_at_once_in_the_order_asked(device: NewDevice, scope: str) -> None:
    mac = device("mac")
    for number in range(0, 500, 3):
        mac.intend(f"r{number}", ("committed", "pending", "failed")[number % 2], agent=f"a{number % 7}")
    await mac.push()
    pairs = [(f"a{number % 7}", f"r{number}") for number in range(500)] * 2
    pairs[3:6] = [("nobody", "r0"), ("", ""), ("a0", "r0")]
    found = read(await lookup(mac.client, scope, pairs))["runs"]
    assert len(found) == 1_000
    for place in (*range(12), 498, 500, 503, 999):
        agent, run = pairs[place]
        assert found[place] == await ask(mac.client, scope, run, agent), place
    assert found[5]["status"] == found[0]["status"] == "committed"
    assert read(await lookup(mac.client, scope, [])) == {"runs": []}
    assert refused(await lookup(mac.client, scope, [*pairs, ("a", "b")]), "invalid_request")["path"] == "body.runs"


async def test_a_look_up_is_read_strictly(admin: httpx.AsyncClient, scope: str) -> None:
    read(await admin.post(f"/sync/{scope}/devices/mac/ops", content=b"[]"))
    url = f"/v1/scopes/{scope}/committed-runs/lookup"
    bodies: list[Any] = [
        [],
        {},
        {"runs": {}},
        {"runs": [{"agent_id": "a"}]},
        {"runs": [{"agent_id": "a", "run_id": 7}]},
    ]
    for body in bodies:
        refused(await admin.post(url, json=body), "invalid_request")


SHARED = "k" * 260


@pytest.mark.parametrize("limit", [1, 2, 3, 10_000])
async def test_committed_run_ids_are_in_byte_order_and_paged(device: NewDevice, scope: str, limit: int) -> None:
    mac = device("mac")
    runs = [
        "",
        "\0",
        "a",
        "B",
        "é",
        "😀",
        "\uffff",
        "a\0",
        "k" * 221,
        "k" * 222,
        SHARED + "b",
        SHARED + "a",
        SHARED,
        "l",
    ]
    for run in [*reversed(runs), "open"]:
        mac.intend(run, "pending" if run == "open" else "committed")
    mac.write("intent", {"agent_id": "ada", "epoch": 1, "status": "committed", "id": 7})
    mac.intend("z", "committed", agent="bob")
    await mac.push()
    found: list[str] = []
    params: dict[str, Any] = {"agent": "ada", "limit": limit}
    while True:
        page = read(await mac.client.get(f"/v1/scopes/{scope}/committed-runs", params=params))
        found += page["run_ids"]
        if page["cursor"] is None:
            break
        params["cursor"] = page["cursor"]
    assert found == sorted(runs, key=str.encode)


async def test_committed_runs_refuse_what_they_cannot_read(device: NewDevice, scope: str) -> None:
    mac: Device = device("mac")
    mac.intend("r", "committed")
    await mac.push()
    url = f"/v1/scopes/{scope}/committed-runs"
    for cursor in ("", "x", "e30", "eyJrZXkiOiJ6In0"):
        refused(await mac.client.get(url, params={"agent": "ada", "cursor": cursor}), "invalid_cursor")
    for limit in (0, 10_001):
        refused(await mac.client.get(url, params={"agent": "ada", "limit": limit}), "invalid_request")
    assert read(await mac.client.get(url, params={"agent": "nobody"})) == {"run_ids": [], "cursor": None}
    refused(await mac.client.get(url), "invalid_request")
