"""Who may act on a run, and what holds once somebody did (run-ledger.md §12, server.md §8)."""

import asyncio
from collections.abc import Callable

import httpx
import pytest

from foldpoint.canonical import Json
from foldpoint.run_ledger.entry import seal_payload
from foldpoint.run_ledger.executor import SEALED_TOGETHER
from tests.fixtures.devices import Device, NewDevice
from tests.fixtures.ledgers import (
    AGENT,
    EMPTY,
    FINISHED,
    RUN,
    STARTED,
    Ledgers,
    called,
    event,
    id_of,
    long,
    numbered,
    record,
)
from tests.fixtures.projections import recorded
from tests.fixtures.server import RunningServer
from tests.wire.answers import read, refused

TOLD = numbered(called())
START = record(6, STARTED)


@pytest.fixture
def ledgers(admin: httpx.AsyncClient, scope: str) -> Ledgers:
    return Ledgers(admin, scope)


def seal_of(device: Device, through: int, *winners: str, epoch: int = 1) -> str:
    """Author a seal on a device's own chain."""
    payload = seal_payload(device.name, RUN, through, winners, epoch)
    device.write("registry:foldpoint.run_ledger", payload)
    return str(payload["id"])


async def test_a_start_is_recorded_and_sealed_in_one_call(ledgers: Ledgers, device: NewDevice) -> None:
    read(await ledgers.append(*TOLD))
    read(await ledgers.acquire())
    answer = read(await ledgers.append(START, epoch=1, seal=True))
    assert answer["statuses"] == [{"id": id_of(START), "seq": 6, "status": "folded"}]
    assert (answer["sealed"], answer["next_seq"], answer["command"]) == (7, 7, None)
    assert read(await ledgers.append(START, epoch=1, seal=True)) == answer
    told = read(await ledgers.get())
    assert (told["sealed"], told["entries"]) == (7, 8)
    early = device("mac")
    for seq, other in enumerate([event("run_started", agent_id="bob"), event("run_failed", reason="no")]):
        recorded(early, record(seq, other))
    await early.push()
    after = read(await ledgers.get())
    assert after["state"] == told["state"]
    late = {one["seq"]: one for one in read(await ledgers.get("/conflicts"))["conflicts"]}
    assert [(one["status"], one["winner"]) for one in late.values()] == [
        ("superseded", id_of(TOLD[0])), ("superseded", id_of(TOLD[1])),
    ]  # fmt: skip


async def test_without_a_seal_a_late_record_displaces(ledgers: Ledgers, device: NewDevice) -> None:
    read(await ledgers.append(*TOLD))
    early = device("mac")
    recorded(early, record(1, event("run_failed", reason="no")))
    await early.push()
    assert read(await ledgers.get())["state"]["phase"] == {"phase": "failed", "reason": "no"}
    read(await ledgers.acquire())
    problem = refused(await ledgers.append(START, epoch=1, seal=True), "seal_mismatch")
    assert (problem["seq"], problem["standing"]["status"], problem["next_seq"]) == (6, "after_terminal", 2)


async def test_a_start_that_does_not_win_is_neither_recorded_nor_sealed(ledgers: Ledgers) -> None:
    read(await ledgers.append(*TOLD))
    read(await ledgers.append(START, writer="other"))
    read(await ledgers.acquire())
    before = read(await ledgers.get())
    problem = refused(await ledgers.append(START, epoch=1, seal=True), "seal_mismatch")
    standing = problem["standing"]
    assert (standing["status"], standing["winner"]) == ("duplicate", id_of(START, "other"))
    wrong = refused(await ledgers.append(record(7, STARTED), epoch=1, seal=True), "seal_mismatch")["standing"]
    assert (wrong["status"], wrong["error"]["variant"]) == ("illegal", "InvalidTransition")
    refused(await ledgers.append(record(9, STARTED), epoch=1, seal=True), "seal_mismatch")
    assert read(await ledgers.get()) | {"remaining_ms": 0} == before | {"remaining_ms": 0}


async def test_only_the_holder_of_the_lease_seals(ledgers: Ledgers) -> None:
    read(await ledgers.append(*TOLD))
    nobody = refused(await ledgers.seal(5, 1), "stale_epoch")
    assert (nobody["claimed_epoch"], nobody["current_epoch"], nobody["current_holder"]) == (1, 0, None)
    read(await ledgers.acquire("other"))
    stolen = refused(await ledgers.seal(5, 1), "stale_epoch")
    assert (stolen["current_epoch"], stolen["current_holder"]) == (1, "other")
    refused(await ledgers.seal(5, 2, "other"), "stale_epoch")
    assert read(await ledgers.seal(5, 1, "other")) == {
        "sealed": 6, "next_seq": 6, "command": read(await ledgers.get())["command"],
    }  # fmt: skip
    read(await ledgers.release(1, "other"))
    refused(await ledgers.seal(5, 1, "other"), "stale_epoch")


async def test_an_expired_lease_that_nobody_stole_still_seals(ledgers: Ledgers) -> None:
    read(await ledgers.append(*TOLD))
    read(await ledgers.acquire(ttl_ms=0))
    assert read(await ledgers.seal(2, 1))["sealed"] == 3
    assert read(await ledgers.seal(1, 1))["sealed"] == 3
    read(await ledgers.acquire("other", ttl_ms=0))
    refused(await ledgers.seal(5, 1), "stale_epoch")


async def test_a_stale_epoch_records_nothing(ledgers: Ledgers) -> None:
    read(await ledgers.append(*TOLD))
    read(await ledgers.acquire(ttl_ms=0))
    read(await ledgers.acquire("other", ttl_ms=0))
    before = read(await ledgers.get())
    problem = refused(await ledgers.append(START, epoch=1), "stale_epoch")
    assert (problem["agent_id"], problem["current_epoch"], problem["current_holder"]) == (AGENT, 2, "other")
    refused(await ledgers.append(START, epoch=2), "stale_epoch")
    refused(await ledgers.append(START, epoch=3), "stale_epoch")
    assert read(await ledgers.get()) == before
    read(await ledgers.append(START, epoch=2, writer="other"))
    read(await ledgers.release(2, "other"))
    refused(await ledgers.append(record(7, FINISHED), epoch=1), "stale_epoch")
    assert read(await ledgers.append(record(7, FINISHED), epoch=2))["statuses"][0]["status"] == "folded"


async def test_who_gives_no_epoch_records_what_needs_no_lease(ledgers: Ledgers) -> None:
    """A person approves while an executor holds the lease."""
    asked = [
        *called()[:5],
        event("policy_evaluated", call_id="c1", decision={"decision": "require_approval", "reason": "?"}),
    ]
    read(await ledgers.append(*numbered(asked)))
    read(await ledgers.acquire("executor"))
    granted = record(6, event("approval_granted", call_id="c1", actor_id="ada"))
    assert read(await ledgers.append(granted, writer="phone"))["command"]["command"] == "execute_tool"


async def test_a_run_that_has_not_started_is_fenced_by_the_agent_that_would_start_it(ledgers: Ledgers) -> None:
    read(await ledgers.acquire("other"))
    refused(await ledgers.append(TOLD[0], epoch=1), "stale_epoch")
    refused(await ledgers.append(TOLD[0], epoch=1, seal=True), "stale_epoch")
    assert read(await ledgers.append(*TOLD, epoch=1, writer="other", seal=True))["sealed"] == 6
    unknown = Ledgers(ledgers.client, ledgers.scope, "unknown")
    finished = record(1, event("run_finished", "unknown"))
    assert read(await unknown.append(finished, epoch=9))["statuses"][0]["status"] == "pending"
    refused(await unknown.append(finished, epoch=9, seal=True), "stale_epoch")


async def test_an_epoch_below_the_agents_fence_is_stale(ledgers: Ledgers, device: NewDevice) -> None:
    read(await ledgers.append(*TOLD))
    read(await ledgers.acquire())
    mac = device("mac")
    mac.intend("other-run", "pending", epoch=5, agent=AGENT)
    await mac.push()
    assert refused(await ledgers.append(START, epoch=1), "stale_epoch")["current_epoch"] == 5
    read(await ledgers.release(1))
    assert read(await ledgers.acquire())["lease"]["epoch"] == 6
    assert read(await ledgers.append(START, epoch=6, seal=True))["sealed"] == 7


async def test_a_claim_above_which_nothing_can_be_granted_fences_nobody(ledgers: Ledgers, device: NewDevice) -> None:
    read(await ledgers.append(*TOLD))
    read(await ledgers.acquire())
    mac = device("mac")
    mac.intend("other-run", "pending", epoch=2**64 - 1, agent=AGENT)
    seal_of(mac, 0, id_of(TOLD[0]), epoch=2**64 - 1)
    await mac.push()
    assert read(await ledgers.append(START, epoch=1, seal=True))["sealed"] == 7


async def test_what_is_not_folded_cannot_be_sealed(ledgers: Ledgers) -> None:
    read(await ledgers.append(*TOLD))
    read(await ledgers.acquire())
    problem = refused(await ledgers.seal(6, 1), "gap")
    assert (problem["expected"], problem["found"]) == (6, 6)


async def test_a_seal_names_what_its_executor_saw(ledgers: Ledgers, device: NewDevice) -> None:
    read(await ledgers.append(*TOLD))
    read(await ledgers.acquire())
    seen = [id_of(one) for one in TOLD[:3]]
    early = device("mac")
    rival = recorded(early, record(2, called()[2], at=9))
    await early.push()
    payload: Json = rival.payload
    assert isinstance(payload, dict)
    problem = refused(await ledgers.seal(2, 1, winners=seen), "seal_mismatch")
    assert (problem["seq"], problem["expected"], problem["actual"]) == (2, payload["id"], seen[2])
    assert problem["sealed"] == 0
    assert read(await ledgers.seal(2, 1, winners=[*seen[:2], payload["id"]]))["sealed"] == 3
    refused(await ledgers.seal(2, 1, winners=seen), "seal_mismatch")
    refused(await ledgers.seal(1, 1, winners=seen), "invalid_request")


async def test_of_devices_seals_that_disagree_the_smaller_epoch_holds(ledgers: Ledgers, device: NewDevice) -> None:
    """On the device wire everything is stored; what disagrees is illegal in the run."""
    mac, phone = device("mac"), device("phone", wall_ms=device("mac").wall_ms + 100)
    for one in TOLD[:2]:
        recorded(mac, one)
    other = recorded(phone, record(1, event("context_built", turn_id="tB", context=EMPTY)))
    names = [id_of(TOLD[0], "mac"), id_of(TOLD[1], "mac")]
    payload: Json = other.payload
    assert isinstance(payload, dict)
    mine = seal_of(mac, 1, *names, epoch=3)
    await mac.push()
    await phone.push()
    assert read(await ledgers.get())["statuses"][mine]["status"] == "folded"
    lower = seal_of(phone, 1, names[0], str(payload["id"]), epoch=2)
    await phone.push()
    told = read(await ledgers.get())
    assert told["statuses"][lower]["status"] == "folded"
    assert told["statuses"][mine]["error"]["variant"] == "SealMismatch"
    assert told["state"]["phase"]["turn_id"] == "tB"
    assert [one["id"] for one in read(await ledgers.get("/conflicts"))["conflicts"]] == [names[1], mine]


async def test_the_first_seal_of_a_long_run_reaches_to_its_start(ledgers: Ledgers, device: NewDevice) -> None:
    told = numbered(long(300))
    read(await ledgers.append(*told))
    assert read(await ledgers.get())["settled"] == len(told) - 64
    read(await ledgers.acquire())
    ids = [id_of(one) for one in told]
    refused(await ledgers.seal(800, 1, winners=["x", *ids[2:801]]), "seal_mismatch")
    assert read(await ledgers.seal(800, 1, winners=ids[:801]))["sealed"] == 801
    answer = read(await ledgers.get())
    assert (answer["sealed"], answer["state"]["next_seq"]) == (801, len(told))
    seals = [one for one in answer["statuses"] if one not in ids]
    assert len(seals) <= 1
    assert answer["settled"] >= len(told) - 64 - SEALED_TOGETHER
    early = device("mac")
    recorded(early, record(5, event("run_failed", reason="no")))
    await early.push()
    late = {"entries": answer["entries"] + 1, "remaining_ms": 0}
    assert read(await ledgers.get()) | {"remaining_ms": 0} == answer | late
    assert [one["seq"] for one in read(await ledgers.get("/conflicts"))["conflicts"]] == [5]


async def test_one_of_two_executors_starts_an_effect_through_two_processes(
    start_server: Callable[..., RunningServer], scope: str
) -> None:
    one, two = start_server(), start_server()
    async with one.client() as first, two.client() as second:
        both = [Ledgers(first, scope), Ledgers(second, scope)]
        read(await both[0].append(*TOLD))

        async def act(n: int) -> int:
            """Take the lease, and start the effect; how often it was started."""
            name, mine = f"e{n}", both[n % 2]
            lease = await mine.acquire(name, ttl_ms=0)
            if lease.status_code != 200:
                return 0
            epoch = lease.json()["lease"]["epoch"]
            answer = await mine.append(record(6, STARTED, at=n), epoch=epoch, seal=True, writer=name)
            assert answer.status_code == 200 or answer.json()["code"] in ("stale_epoch", "seal_mismatch")
            return int(answer.status_code == 200)

        assert sum(await asyncio.gather(*map(act, range(12)))) <= 1
        assert sum([await act(n) for n in range(12, 15)]) <= 1
        told = read(await both[1].get())
        assert (told["state"]["phase"]["phase"], told["sealed"]) == ("tool_running", 7)
