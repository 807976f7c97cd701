"""Run ledgers over HTTP: recorded, merged, told and moved (run-ledger.md §12, server.md §11)."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import orjson
import pytest

from foldpoint.chain import verify_log
from foldpoint.op_text import read_op
from tests.fixtures.devices import NewDevice, collect, op_texts
from tests.fixtures.ledgers import AGENT, FINISHED, STARTED, Ledgers, called, event, id_of, numbered, record
from tests.fixtures.projections import recorded, started
from tests.fixtures.server import RunningServer
from tests.fixtures.tokens import ClientOf
from tests.wire.answers import read, refused


@pytest.fixture
def ledgers(admin: httpx.AsyncClient, scope: str) -> Ledgers:
    return Ledgers(admin, scope)


async def test_an_append_is_told_what_became_of_each_record_and_what_comes_next(ledgers: Ledgers) -> None:
    told = numbered(called())
    answer = read(await ledgers.append(*told))
    assert answer["statuses"] == [{"id": id_of(one), "seq": one["seq"], "status": "folded"} for one in told]
    assert (answer["next_seq"], answer["command"]["command"]) == (6, "execute_tool")
    wrong, late = record(6, event("run_finished")), record(9, event("run_finished"))
    answer = read(await ledgers.append(wrong, late, record(0, event("run_started", agent_id=AGENT), at=5)))
    assert [one["status"] for one in answer["statuses"]] == ["illegal", "pending", "duplicate"]
    assert answer["statuses"][0]["error"]["variant"] == "InvalidTransition"
    assert answer["statuses"][2]["winner"] == id_of(told[0])
    assert answer["next_seq"] == 6


async def test_a_run_is_told_with_its_command_its_last_record_and_the_lease_of_its_agent(
    ledgers: Ledgers, device: NewDevice
) -> None:
    told = numbered(called())
    read(await ledgers.append(*told[:5]))
    mac = device("mac")
    recorded(mac, told[5])
    await mac.push()
    answer = read(await ledgers.get())
    assert answer["state"]["phase"]["phase"] == "ready_to_execute_tool"
    assert answer["command"] == {"command": "execute_tool", "call": told[4]["event"]["call"]}
    assert set(answer["statuses"]) == {*map(id_of, told[:5]), id_of(told[5], "mac")}
    assert (answer["blocked_at"], answer["settled"], answer["sealed"], answer["entries"]) == (None, 0, 0, 6)
    assert answer["last"] == {
        "id": id_of(told[5], "mac"), "seq": 5, "op_id": mac.ops[0].op_id, "device_id": "mac",
    }  # fmt: skip
    assert (answer["agent_id"], answer["lease"]) == (AGENT, None)
    read(await ledgers.acquire("web"))
    answer = read(await ledgers.get())
    assert (answer["lease"]["holder"], answer["lease"]["epoch"]) == ("web", 1)
    assert 0 < answer["remaining_ms"] <= 60_000


async def test_a_run_that_nobody_recorded_is_not_started(ledgers: Ledgers, device: NewDevice) -> None:
    await device("mac").push()
    answer = read(await ledgers.get())
    assert answer["state"] == {
        "run_id": None, "next_seq": 0, "phase": {"phase": "not_started"}, "pending_compaction_turn": None,
    }  # fmt: skip
    assert (answer["statuses"], answer["command"], answer["last"], answer["agent_id"]) == ({}, None, None, None)
    for path, empty in (("/conflicts", {"conflicts": []}), ("/statuses", {"statuses": [], "cursor": None})):
        assert read(await ledgers.get(path)) == empty
    assert read(await ledgers.get("/readback")) == {
        "ok": True, "entries": [], "final_phase": {"phase": "not_started"}, "next_seq": 0,
    }  # fmt: skip
    assert (await ledgers.get("/export")).content == b""


async def test_runs_are_listed_page_by_page_in_byte_order(admin: httpx.AsyncClient, scope: str) -> None:
    names = ["z", "a/b", "é", "\x00", "a" * 3_000]
    for name in names:
        read(await Ledgers(admin, scope, name).append(*numbered(called(name))))
    found, cursor = [], None
    while True:
        params = {"limit": 2} | ({} if cursor is None else {"cursor": cursor})
        page = read(await admin.get(f"/v1/scopes/{scope}/run-ledgers", params=params))
        found += page["runs"]
        if (cursor := page["cursor"]) is None:
            break
    assert [run["run_id"] for run in found] == sorted(names, key=str.encode)
    assert found[0] == {
        "run_id": "\x00",
        "agent_id": AGENT,
        "phase": "ready_to_execute_tool",
        "command": "execute_tool",
        "next_seq": 6,
        "blocked_at": None,
        "sealed": 0,
        "entries": 6,
    }
    refused(await admin.get(f"/v1/scopes/{scope}/run-ledgers", params={"cursor": "x"}), "invalid_cursor")


async def test_what_a_writer_recorded_before_is_not_recorded_again(ledgers: Ledgers) -> None:
    told = numbered(called())
    first = await ledgers.append(*told)
    rival = record(6, event("tool_started", call_id="c1"), at=7)
    read(await ledgers.append(rival, writer="other"))
    assert (await ledgers.append(*told)).json()["statuses"] == first.json()["statuses"]
    again = read(await ledgers.append(record(6, STARTED), record(6, STARTED)))
    assert [(one["status"], one["winner"]) for one in again["statuses"]] == 2 * [("duplicate", id_of(rival, "other"))]
    assert read(await ledgers.get())["entries"] == 8


async def test_a_key_carries_an_append_out_once(ledgers: Ledgers) -> None:
    first = await ledgers.append(record(0, called()[0]), key="k")
    read(await ledgers.append(record(1, called()[1])))
    assert (await ledgers.append(record(0, called()[0]), key="k")).content == first.content
    refused(await ledgers.append(record(0, called()[0], at=1), key="k"), "invalid_request")


async def test_devices_pull_and_verify_what_is_appended(ledgers: Ledgers, device: NewDevice) -> None:
    read(await ledgers.append(*numbered(called())))
    log = [read_op(text) for text in op_texts(await device("mac").pull())]
    verify_log(log)
    assert {op.surface for op in log} == {"registry:foldpoint.run_ledger"}
    payloads: list[Any] = [op.payload for op in log]
    assert [payload["record"]["seq"] for payload in payloads] == list(range(6))


BAD: dict[str, tuple[Any, str, str]] = {
    "no object": (5, "records.1", "invalid_type"),
    "an unknown event": (record(1, event("run_paused")), "records.1.event.event", "unknown_variant"),
    "another run": (record(1, event("run_finished", run="other")), "records.1.event.run_id", "foreign_run"),
    "a float": (record(1.0, event("run_finished")), "records.1.seq", "invalid_type"),  # type: ignore[arg-type]
    "an unknown key": ({**record(1, event("run_finished")), "x": 1}, "records.1.x", "unknown_field"),
    "a blank id": (record(1, event("tool_started", call_id="\u2003")), "records.1.event.call_id", "empty_identifier"),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_record_that_does_not_decode_refuses_the_whole_call(ledgers: Ledgers, name: str) -> None:
    bad, path, error_class = BAD[name]
    problem = refused(await ledgers.append(record(0, called()[0]), bad), "invalid_request")
    assert (problem["path"], problem["error_class"]) == (path, error_class)
    refused(await ledgers.get(), "not_found")


BAD_CALLS: dict[str, tuple[dict[str, Any], str]] = {
    "no writer": ({"writer": "a b"}, "writer"),
    "a blank run": ({"run_id": " "}, "run_id"),
    "no records": ({"records": []}, "records"),
    "an epoch of zero": ({"epoch": 0}, "epoch"),
    "a seal without an epoch": ({"seal": True}, "epoch"),
    "a seal that is no boolean": ({"seal": 1, "epoch": 1}, "seal"),
}


@pytest.mark.parametrize("name", BAD_CALLS)
async def test_a_call_that_cannot_be_read_is_refused(ledgers: Ledgers, name: str) -> None:
    fields, path = BAD_CALLS[name]
    body = {"writer": "web", "run_id": "r", "records": numbered(called()), **fields}
    problem = refused(await ledgers.client.post(ledgers.path + "/append", json=body), "invalid_request")
    assert problem["path"] == path


async def test_a_key_given_twice_in_a_record_is_refused(ledgers: Ledgers) -> None:
    text = b'{"seq":0,"seq":0,"occurred_at_ms":0,"event":{"event":"run_started","run_id":"r","agent_id":"ada"}}'
    body = b'{"writer":"web","run_id":"r","records":[%b]}'
    problem = refused(await ledgers.client.post(ledgers.path + "/append", content=body % text), "invalid_request")
    assert (problem["path"], problem["error_class"]) == ("seq", "duplicate_field")


@pytest.mark.parametrize("role", ["reader", "executor", "device"])
async def test_who_may_read_and_who_may_write(client_of: ClientOf, scope: str, role: str) -> None:
    mine = Ledgers(await client_of(role, scope), scope)
    other = Ledgers(mine.client, scope + "2")
    calls: list[Callable[[Ledgers], Any]] = [
        lambda of: of.append(*numbered(called())),
        lambda of: of.import_(b""),
        lambda of: of.seal(0, 1),
    ]
    for call in calls:
        refused(await call(other), "forbidden")
    for path in ("", "/conflicts", "/readback", "/export", "/statuses"):
        refused(await other.get(path), "forbidden")
    if role == "reader":
        for call in calls:
            refused(await call(mine), "forbidden")
    else:
        read(await calls[0](mine))
        read(await calls[1](mine))
        refused(await calls[2](mine), "stale_epoch")
    read(await mine.get())


async def test_what_lost_is_told_with_its_op_its_device_and_why(ledgers: Ledgers, device: NewDevice) -> None:
    mac, phone = device("mac"), device("phone", wall_ms=device("mac").wall_ms + 10)
    told = numbered(called())
    for one in told:
        recorded(mac, one)
    rival = recorded(phone, record(1, event("context_built", turn_id="tB", context=called()[1]["context"])))
    wrong = recorded(phone, record(2, event("run_finished")))
    same = recorded(phone, record(0, called()[0], at=9))
    await phone.push()
    await mac.push()
    found = read(await ledgers.get("/conflicts"))["conflicts"]
    assert [(one["op_id"], one["device_id"], one["seq"], one["status"]) for one in found] == [
        (rival.op_id, "phone", 1, "superseded"),
        (wrong.op_id, "phone", 2, "illegal"),
    ]
    assert found[0]["winner"] == id_of(told[1], "mac")
    assert found[0]["record"]["event"]["turn_id"] == "tB"
    assert found[1]["error"]["variant"] == "InvalidTransition"
    payload: Any = same.payload
    assert read(await ledgers.get())["statuses"][payload["id"]]["status"] == "duplicate"


async def test_an_op_that_hides_anothers_entry_in_the_registry_takes_nothing_from_the_run(
    ledgers: Ledgers, device: NewDevice
) -> None:
    mac, thief = device("mac"), device("thief", wall_ms=device("mac").wall_ms + 1_000)
    payload: Any = started(mac, agent=AGENT).payload
    thief.write("registry:foldpoint.run_ledger", {**payload, "record": record(0, event("run_started", agent_id="x"))})
    await mac.push()
    await thief.push()
    before = read(await ledgers.get())
    assert (before["agent_id"], list(before["statuses"])) == (AGENT, [payload["id"]])
    assert read(await ledgers.get("/statuses"))["statuses"] == [{"id": payload["id"], "seq": 0, "status": "folded"}]
    assert await collect([mac, thief]) == {"mac": 1, "thief": 1}
    assert read(await ledgers.get()) == before
    assert len((await ledgers.get("/export")).content.splitlines()) == 1


async def test_what_a_device_records_again_stands_at_its_later_stamp(ledgers: Ledgers, device: NewDevice) -> None:
    mac, phone = device("mac"), device("phone", wall_ms=device("mac").wall_ms + 10)
    told = numbered(called())
    recorded(mac, told[0])
    recorded(mac, told[1])
    await mac.push()
    rival = recorded(phone, record(1, told[1]["event"], at=9))
    await phone.push()
    payload: Any = rival.payload
    assert read(await ledgers.get())["last"]["id"] == id_of(told[1], "mac")
    mac.wall_ms = phone.wall_ms + 10
    recorded(mac, told[1])
    await mac.push()
    answer = read(await ledgers.get())
    assert (answer["last"]["id"], answer["entries"]) == (payload["id"], 3)
    assert answer["statuses"][id_of(told[1], "mac")] == {"status": "duplicate", "winner": payload["id"]}


async def test_a_ledger_is_read_back_exported_and_imported_elsewhere(
    ledgers: Ledgers, admin: httpx.AsyncClient
) -> None:
    told = numbered([*called(), STARTED, FINISHED, event("run_finished")])
    read(await ledgers.append(*told))
    readback = read(await ledgers.get("/readback"))
    assert [entry["entry"] for entry in readback["entries"]] == ["model_message", "tool_call", "tool_result"]
    assert (readback["final_phase"], readback["next_seq"]) == ({"phase": "finished"}, 9)
    exported = await ledgers.get("/export")
    assert exported.headers["content-type"] == "application/x-ndjson"
    assert [orjson.loads(line) for line in exported.content.splitlines()] == told
    elsewhere = Ledgers(admin, ledgers.scope + "2")
    report = {"stored": 9, "duplicate": 0, "skipped": 0, "report": []}
    assert read(await elsewhere.import_(exported.content)) == report
    assert (await elsewhere.get("/export")).content == exported.content
    assert read(await elsewhere.get())["state"] == read(await ledgers.get())["state"]


async def test_two_processes_and_many_writers_record_each_seq_once(
    start_server: Callable[..., RunningServer], scope: str
) -> None:
    one, two = start_server(), start_server()
    async with one.client() as first, two.client() as second:
        both = [Ledgers(first, scope), Ledgers(second, scope)]
        read(await both[0].append(record(0, called()[0])))
        tries = (
            both[n % 2].append(
                record(1, event("context_built", turn_id=f"t{n}", context=called()[1]["context"])), writer=f"w{n}"
            )
            for n in range(12)
        )
        answers = [read(answer) for answer in await asyncio.gather(*tries)]
        statuses = [answer["statuses"][0]["status"] for answer in answers]
        assert sorted(statuses) == ["folded"] + 11 * ["superseded"]
        assert read(await both[0].get()) == read(await both[1].get())
