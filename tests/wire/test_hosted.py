"""Writes through hosted chains (server.md §7, §11): one call, one transaction, ops that real devices verify."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from foldpoint.chain import verify_log
from foldpoint.fold import fold
from foldpoint.hlc import U32_MAX
from foldpoint.op import op_from_json
from foldpoint.op_text import read_op
from foldpoint.state import state_hash
from tests.fixtures.devices import Device, NewDevice, envelope, op_texts
from tests.fixtures.server import RunningServer
from tests.fixtures.tokens import ClientOf
from tests.wire.answers import read, refused


async def post(client: httpx.AsyncClient, scope: str, path: str, key: str | None = None, **body: Any) -> httpx.Response:
    headers = {} if key is None else {"idempotency-key": key}
    return await client.post(f"/v1/scopes/{scope}/{path}", json={"writer": "web", **body}, headers=headers)


async def append(client: httpx.AsyncClient, scope: str, *ids: str, **more: Any) -> httpx.Response:
    ops = [{"surface": "knowledge", "payload": {"id": name}} for name in ids]
    return await post(client, scope, "hosted/append", ops=ops, **more)


async def say(client: httpx.AsyncClient, scope: str, content: str, **more: Any) -> httpx.Response:
    return await post(client, scope, "turns", **{"conversation_id": "c", "role": "user", "content": content, **more})


async def intend(client: httpx.AsyncClient, scope: str, status: str, **more: Any) -> httpx.Response:
    fields = {"agent_id": "ada", "run_id": "r", "epoch": 1, "status": status, **more}
    return await post(client, scope, "intents", **fields)


async def status_of(client: httpx.AsyncClient, scope: str, run: str = "r") -> str:
    params = {"agent": "ada", "run": run}
    return str(read(await client.get(f"/v1/scopes/{scope}/committed-run", params=params))["status"])


async def test_devices_pull_verify_and_fold_what_a_hosted_writer_wrote(
    device: NewDevice, admin: httpx.AsyncClient, scope: str
) -> None:
    mac = device("mac")
    mac.facts(2)
    await mac.push()
    answer = read(await append(admin, scope, "a", "b"))
    said = read(await say(admin, scope, "hello"))
    epoch = (await admin.get("/healthz")).headers["foldpoint-epoch"]
    names = {op["device_id"] for op in [*answer["ops"], said["op"]]}
    assert names == {f"hosted-web-{epoch[:8]}"}
    pulled = [read_op(text) for text in op_texts(await mac.pull())]
    verify_log(pulled)
    hosted = [op for op in pulled if op.device_id in names]
    assert [op.seq for op in hosted] == [0, 1, 2]
    assert [op.to_json() for op in hosted] == [*answer["ops"], said["op"]]
    assert all(op.hlc > mac.ops[-1].hlc for op in hosted)
    told = read(await admin.get(f"/v1/scopes/{scope}/state/hash"))
    assert told["state_hash"] == state_hash(fold(pulled))


async def test_a_hosted_chain_is_not_on_the_roster_and_holds_nothing_back(
    device: NewDevice, admin: httpx.AsyncClient, scope: str
) -> None:
    read(await append(admin, scope, "a"))
    mac = device("mac")
    mac.facts(1)
    await mac.push()
    mac.wall_ms = 2**42
    mac.facts(1)
    refused(await mac.offer(mac.ops[1:]), "clock_skew")
    assert [entry["device_id"] for entry in read(await admin.get(f"/sync/{scope}/roster"))] == ["mac"]
    (op,) = read(await append(admin, scope, "b"))["ops"]
    read(await mac.ack(op_from_json(op).hlc))
    dropped = read(await admin.post(f"/v1/scopes/{scope}/gc"))["dropped"]
    assert dropped == {"mac": 1, op["device_id"]: 2}


async def test_where_there_are_hosted_chains_only_an_admins_collection_takes_the_head_as_stable(
    admin: httpx.AsyncClient, scope: str
) -> None:
    (op, _) = read(await append(admin, scope, "a", "b"))["ops"]
    before = read(await admin.get(f"/v1/scopes/{scope}/state/hash"))
    assert read(await admin.post(f"/sync/{scope}/gc")) == {"dropped": {}}
    assert read(await admin.post(f"/v1/scopes/{scope}/gc"))["dropped"] == {op["device_id"]: 2}
    assert read(await admin.get(f"/v1/scopes/{scope}/state/hash")) == before
    (later,) = read(await append(admin, scope, "c"))["ops"]
    assert later["seq"] == 2


async def test_turns_are_shown_and_resumed(admin: httpx.AsyncClient, scope: str) -> None:
    calls = [{"id": "t1", "name": "look", "arguments": {"x": 1}}]
    read(await say(admin, scope, "what is there?"))
    read(await say(admin, scope, "", role="assistant", tool_calls=calls))
    read(await say(admin, scope, "a bed", role="tool_result", tool_use_id="t1", ok=True, provenance="external"))
    turns = read(await admin.get(f"/v1/scopes/{scope}/transcript", params={"conversation": "c"}))["turns"]
    assert [turn["role"] for turn in turns] == ["user", "assistant", "tool"]
    assert turns[1]["tool_calls"] == calls
    assert (turns[2]["ok"], turns[2]["provenance"]) == (True, "external")
    resumed = read(await admin.get(f"/v1/scopes/{scope}/resume", params={"conversation": "c"}))
    assert resumed["repairs"] == []


async def test_an_intent_goes_from_pending_to_committed_and_stays_so(admin: httpx.AsyncClient, scope: str) -> None:
    assert read(await intend(admin, scope, "pending"))["recorded"] is True
    assert await status_of(admin, scope) == "in_doubt"
    assert read(await intend(admin, scope, "committed"))["op"]["payload"]["status"] == "committed"
    for status in ("pending", "failed"):
        assert read(await intend(admin, scope, status, epoch=2)) == {
            "recorded": False, "reason": "already_committed",
        }  # fmt: skip
    assert read(await intend(admin, scope, "committed", epoch=2))["recorded"] is True
    assert await status_of(admin, scope) == "committed"


async def test_an_intent_that_must_be_current_needs_the_writers_own_lease(admin: httpx.AsyncClient, scope: str) -> None:
    """The lease is read in the transaction that writes: stale by then is 409, with who holds it now."""
    problem = refused(await intend(admin, scope, "pending", if_current=True), "stale_epoch")
    assert (problem["claimed_epoch"], problem["current_epoch"], problem["current_holder"]) == (1, None, None)
    lease = {"agent_id": "ada", "device_id": "web", "ttl_ms": 60_000}
    read(await admin.post(f"/v1/scopes/{scope}/leases/acquire", json=lease))
    assert read(await intend(admin, scope, "pending", if_current=True))["recorded"] is True
    refused(await intend(admin, scope, "pending", epoch=2, if_current=True), "stale_epoch")
    refused(await intend(admin, scope, "pending", writer="other", if_current=True), "stale_epoch")
    read(await admin.post(f"/v1/scopes/{scope}/leases/release", json={**lease, "epoch": 1}))
    refused(await intend(admin, scope, "committed", if_current=True), "stale_epoch")
    read(await admin.post(f"/v1/scopes/{scope}/leases/acquire", json={**lease, "device_id": "mac"}))
    problem = refused(await intend(admin, scope, "committed", if_current=True), "stale_epoch")
    assert (problem["current_epoch"], problem["current_holder"]) == (2, "mac")
    assert await status_of(admin, scope) == "in_doubt"


async def test_a_key_carries_a_call_out_once(admin: httpx.AsyncClient, scope: str) -> None:
    first = await append(admin, scope, "a", key="k1")
    assert (await append(admin, scope, "a", key="k1")).content == first.content
    assert read(await append(admin, scope, "a", key="k2")) != read(first)
    refused(await append(admin, scope, "b", key="k1"), "invalid_request")
    refused(await say(admin, scope, "a", key="k1"), "invalid_request")
    assert read(await admin.get(f"/v1/scopes/{scope}/"))["ops"] == 2
    other = await append(admin, scope + "2", "a", key="k1")
    assert read(other)["ops"][0]["seq"] == 0


async def test_a_refused_call_is_not_kept_under_its_key(admin: httpx.AsyncClient, scope: str) -> None:
    refused(await intend(admin, scope, "pending", if_current=True, key="k"), "stale_epoch")
    lease = {"agent_id": "ada", "device_id": "web", "ttl_ms": 60_000}
    read(await admin.post(f"/v1/scopes/{scope}/leases/acquire", json=lease))
    assert read(await intend(admin, scope, "pending", if_current=True, key="k"))["recorded"] is True


async def test_a_key_is_forgotten_after_a_day(admin: httpx.AsyncClient, scope: str, database: Any) -> None:
    read(await append(admin, scope, "a", key="k"))
    await database.execute("update idempotency set until_ms = until_ms - 24 * 3600 * 1000 - 1")
    assert read(await append(admin, scope, "other", key="k"))["ops"][0]["seq"] == 1
    assert (
        await database.fetchval(
            "select count(*) from idempotency i join scope s on s.id = i.scope where s.slug = $1", scope
        )
        == 1
    )


@pytest.mark.parametrize("calls", [20])
async def test_the_same_key_at_once_and_many_writers_at_once(admin: httpx.AsyncClient, scope: str, calls: int) -> None:
    same = await asyncio.gather(*(append(admin, scope, "a", key="k") for _ in range(calls)))
    assert len({answer.content for answer in same}) == 1
    each = await asyncio.gather(*(append(admin, scope, f"f{n}", writer=f"w{n % 4}") for n in range(calls)))
    ops = [op_from_json(read(answer)["ops"][0]) for answer in each]
    log = [read_op(text) for text in op_texts(await Device(admin, scope, "mac").pull())]
    verify_log(log)
    assert {op.op_id for op in ops} | {read(same[0])["ops"][0]["op_id"]} == {op.op_id for op in log}
    assert len({op.hlc[:2] for op in log}) == len(log)


async def test_stamps_are_above_everything_in_the_scope_and_roll_a_full_counter(
    device: NewDevice, admin: httpx.AsyncClient, scope: str, database: Any
) -> None:
    ahead = read(await append(admin, scope, "a"))["ops"][0]["hlc"]["wall_ms"] + 3_600_000
    mac = device("mac", ahead)
    mac.facts(1)
    await mac.push()
    first = read(await append(admin, scope, "b"))["ops"][0]["hlc"]
    assert (first["wall_ms"], first["counter"]) == (ahead, 1)
    full = "update device d set head_counter = $2 from scope s where s.id = d.scope and s.slug = $1 and d.slug = 'mac'"
    await database.execute(full, scope, U32_MAX)
    rolled = read(await append(admin, scope, "c"))["ops"][0]["hlc"]
    assert (rolled["wall_ms"], rolled["counter"]) == (ahead + 1, 0)


async def test_no_device_may_use_a_hosted_id(admin: httpx.AsyncClient, scope: str) -> None:
    (op,) = read(await append(admin, scope, "a"))["ops"]
    intruder = Device(admin, scope, op["device_id"])
    intruder.facts(1)
    refused(await intruder.offer(intruder.ops), "reserved_device")
    lease = {"device_id": op["device_id"], "ttl_ms": 1_000}
    refused(await admin.post(f"/sync/{scope}/leases/ada/acquire", json=lease), "reserved_device")


async def test_nothing_is_written_into_a_sealed_scope_without_its_keys(
    device: NewDevice, admin: httpx.AsyncClient, scope: str
) -> None:
    mac = device("mac")
    mac.write("conversation", envelope())
    await mac.push()
    for call in (append(admin, scope, "a"), say(admin, scope, "x"), intend(admin, scope, "pending")):
        refused(await call, "sealed_scope", 409)


async def test_an_envelope_begins_no_scope_by_a_hosted_write(admin: httpx.AsyncClient, scope: str) -> None:
    ops = [{"surface": "knowledge", "payload": envelope()}]
    refused(await post(admin, scope, "hosted/append", ops=ops), "plain_scope")


@pytest.mark.parametrize("role", ["executor", "device"])
async def test_executors_and_devices_may_write_in_their_scope(client_of: ClientOf, scope: str, role: str) -> None:
    client = await client_of(role, scope)
    assert read(await append(client, scope, "a"))["ops"]
    assert read(await intend(client, scope, "pending"))["recorded"] is True
    refused(await append(client, scope + "2", "a"), "forbidden")


async def test_a_reader_may_not(client_of: ClientOf, scope: str) -> None:
    refused(await append(await client_of("reader", scope), scope, "a"), "forbidden")


BAD: dict[str, Callable[[], dict[str, Any]]] = {
    "no writer": lambda: {"writer": None},
    "a writer that is no slug": lambda: {"writer": "a b"},
    "no ops": lambda: {"ops": []},
    "an unknown surface": lambda: {"ops": [{"surface": "novel", "payload": 1}]},
}


@pytest.mark.parametrize("name", BAD)
async def test_what_cannot_be_read_is_refused_whole(admin: httpx.AsyncClient, scope: str, name: str) -> None:
    good = [{"surface": "knowledge", "payload": {"id": "a"}}]
    body = {"writer": "web", "ops": good, **BAD[name]()}
    response = await admin.post(f"/v1/scopes/{scope}/hosted/append", json=body)
    assert refused(response, "invalid_request")["path"]
    refused(await admin.get(f"/v1/scopes/{scope}/"), "not_found")


async def test_a_call_is_all_or_nothing(start_server: Callable[..., RunningServer], scope: str) -> None:
    server = start_server(max_op_bytes="2000", max_ops_per_request="3")
    async with server.client() as client:
        large = [{"surface": "run", "payload": "x" * n} for n in (10, 3_000)]
        refused(await post(client, scope, "hosted/append", ops=large), "too_large")
        refused(await append(client, scope, *"abcd"), "too_many_ops")
        assert read(await append(client, scope, "a"))["ops"][0]["seq"] == 0


async def test_a_body_that_is_no_object_is_refused(admin: httpx.AsyncClient, scope: str) -> None:
    for body in (b"[]", b"null", b"x", b""):
        response = await admin.post(f"/v1/scopes/{scope}/turns", content=body)
        refused(response, "invalid_request")


@pytest.mark.parametrize("path", ["intents", "run-ledgers/append", "run-ledgers/seal", "contexts/ops"])
async def test_a_name_with_a_slip_in_it_is_refused(admin: httpx.AsyncClient, scope: str, path: str) -> None:
    problem = refused(await post(admin, scope, path, epoc=1), "invalid_request")
    assert (problem["path"], problem["detail"].rpartition(" ")[2]) == ("epoc", "unknown")
