"""What a request may bring, and what is said of one that brings more (server.md §11, §12)."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from app.settings import Settings
from foldpoint.op import Op
from tests.fixtures.database import fresh_database
from tests.fixtures.devices import Device, NewDevice, body_of
from tests.fixtures.server import RunningServer, running_server
from tests.wire.answers import read, refused

MAX_BODY, MAX_OPS, MAX_OP = 2_000_000, 7_000, 20_000


@pytest.fixture(scope="module")
def small(database_server: str, migrated_template: str) -> Iterator[RunningServer]:
    """A server that takes little."""
    with fresh_database(database_server, migrated_template) as url:
        settings = {"max_body_bytes": MAX_BODY, "max_ops_per_request": MAX_OPS, "max_op_bytes": MAX_OP}
        with running_server(url, **{name: str(value) for name, value in settings.items()}) as server:
            yield server


@pytest.fixture
async def client(small: RunningServer) -> AsyncIterator[httpx.AsyncClient]:
    async with small.client() as client:
        yield client


@pytest.fixture
def mac(client: httpx.AsyncClient, scope: str) -> Device:
    return Device(client, scope, "mac")


async def limits_of(client: httpx.AsyncClient) -> dict[str, Any]:
    limits: dict[str, Any] = read(await client.get("/v1/limits"))
    return limits


def sized(device: Device, size: int) -> Op:
    """An op whose text has exactly so many bytes."""
    bare = len(Device(device.client, "", device.name).write("knowledge", {"id": ""}).text())
    if device.ops:
        bare += len(device.ops[-1].op_id) - len("null") + 2
    op = device.write("knowledge", {"id": "x" * (size - bare - len(str(len(device.ops))) + 1)})
    assert len(op.text()) == size
    return op


async def test_R25_the_limits_are_told(client: httpx.AsyncClient, admin: httpx.AsyncClient) -> None:
    assert await limits_of(client) == {
        "max_body_bytes": MAX_BODY,
        "max_ops_per_request": MAX_OPS,
        "max_op_bytes": MAX_OP,
        "max_nesting": 120,
        "max_clock_skew_ms": 24 * 3_600_000,
    }
    assert await limits_of(admin) == Settings(database_url=None, admin_token=None).limits()


def says_the_limits(problem: dict[str, Any], limits: dict[str, Any]) -> bool:
    return {name: problem[name] for name in limits} == limits and bool(problem["advice"])


async def chunks(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 64_000):
        yield body[start : start + 64_000]


@pytest.mark.parametrize("chunked", [False, True], ids=["announced", "in chunks"])
@pytest.mark.parametrize("call", ["devices/mac/ops", "devices/mac/pull", "devices/mac/ack", "checkpoints"])
async def test_R25_a_body_above_the_limit_is_413_with_the_limits(mac: Device, call: str, *, chunked: bool) -> None:
    limits = await limits_of(mac.client)
    method = "PUT" if call == "checkpoints" else "POST"
    url = f"/sync/{mac.scope}/{call}"
    read(await mac.client.post(mac.path))
    largest, larger = b" " * MAX_BODY, b" " * (MAX_BODY + 1)
    response = await mac.client.request(method, url, content=chunks(largest) if chunked else largest)
    refused(response, "invalid_request")
    response = await mac.client.request(method, url, content=chunks(larger) if chunked else larger)
    assert says_the_limits(refused(response, "too_large"), limits)


@pytest.mark.parametrize("chunked", [False, True], ids=["announced", "in chunks"])
async def test_R25_no_route_takes_a_larger_body(mac: Device, *, chunked: bool) -> None:
    read(await mac.client.post(mac.path))
    larger = b'{"agent_id":"' + b"x" * MAX_BODY + b'"}'
    for path in ("leases/acquire", "fence", "committed-runs/lookup"):
        content = chunks(larger) if chunked else larger
        headers = {"Content-Type": "application/json"}
        response = await mac.client.post(f"/v1/scopes/{mac.scope}/{path}", content=content, headers=headers)
        assert says_the_limits(refused(response, "too_large"), await limits_of(mac.client))


async def test_R25_many_ops_below_the_count_can_be_above_the_bytes_and_halving_converges(mac: Device) -> None:
    for number in range(300):
        mac.write("knowledge", {"id": str(number), "text": "x" * 10_000})
    waiting, most = list(mac.ops), len(mac.ops)
    sizes = []
    while waiting:
        response = await mac.offer(waiting[:most])
        if response.status_code == 413:
            refused(response, "too_large")
            most //= 2
            continue
        sizes.append(read(response)["accepted"])
        waiting = waiting[most:]
    assert (sum(sizes), sizes[0]) == (300, 150)


async def test_R25_one_op_above_the_limit_is_named_and_those_before_it_stay(mac: Device) -> None:
    ops = [*mac.facts(2), sized(mac, MAX_OP), sized(mac, MAX_OP + 1), *mac.facts(1)]
    problem = refused(await mac.offer(ops), "too_large")
    assert (problem["index"], problem["accepted"], problem["deduped"]) == (3, 3, 0)
    assert says_the_limits(problem, await limits_of(mac.client))
    url = f"/v1/scopes/{mac.scope}/devices/mac/ops"
    results = read(await mac.client.post(url, content=body_of(ops)))["results"]
    assert [result["result"] for result in results] == ["duplicate"] * 3 + ["rejected", "not_attempted"]
    assert results[3]["code"] == "too_large"


async def test_R26_exactly_the_largest_number_of_ops_is_taken_and_one_more_is_413(mac: Device) -> None:
    """Seventy thousand values, more than one statement may have as parameters; all in one millisecond."""
    mac.wall_ms = 5
    for number in range(MAX_OPS + 1):
        mac.wall_ms = 5
        mac.write("intent" if number % 2 else "registry:config", {"id": str(number), "status": "committed"})
    for url in (f"{mac.path}/ops", f"/v1/scopes/{mac.scope}/devices/mac/ops"):
        response = await mac.client.post(url, content=body_of(mac.ops))
        problem = refused(response, "too_many_ops")
        assert says_the_limits(problem, await limits_of(mac.client))
        assert (problem["accepted"], problem["deduped"]) == (0, 0)
    assert read(await mac.offer(mac.ops[:-1])) == {"accepted": MAX_OPS, "deduped": 0}
    assert read(await mac.offer(mac.ops[1:])) == {"accepted": 1, "deduped": MAX_OPS - 1}
    pages = [await mac.client.get(f"/v1/scopes/{mac.scope}/ops", params={"limit": 5_000})]
    pages.append(await mac.client.get(f"/v1/scopes/{mac.scope}/ops", params={"cursor": read(pages[0])["cursor"]}))
    assert [len(read(page)["ops"]) for page in pages] == [5_000, 1_000]
    runs = [{"agent_id": "", "run_id": str(number)} for number in range(1, 2_000, 2)]
    found = read(await mac.client.post(f"/v1/scopes/{mac.scope}/committed-runs/lookup", json={"runs": runs}))
    assert {run["status"] for run in found["runs"]} == {"committed"}


async def test_R26_a_body_of_exactly_the_largest_size_is_taken(mac: Device) -> None:
    body = body_of(mac.facts(3))
    padded = body + b" " * (MAX_BODY - len(body))
    assert read(await mac.client.post(f"{mac.path}/ops", content=padded)) == {"accepted": 3, "deduped": 0}
    refused(await mac.client.post(f"{mac.path}/ops", content=padded + b" "), "too_large")


async def test_R26_a_hundred_thousand_ops_in_one_body_work(device: NewDevice, scope: str) -> None:
    """What a real device sends when it comes back, and what it pulls then."""
    mac = device("mac")
    for number in range(100_000):
        mac.write("routing", number)
    assert read(await mac.offer(mac.ops)) == {"accepted": 100_000, "deduped": 0}
    assert read(await mac.client.get(f"/v1/scopes/{scope}/"))["frontier"] == {"mac": 99_999}
    response = await mac.pull({"mac": 10})
    assert response.content.count(b'"op_id":') == 99_989
    assert response.content.endswith((b'],"latest_checkpoint":null}', b'"}'))
