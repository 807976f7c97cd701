"""The relay traces of the original crate, step by step over HTTP, each in a scope of its own.

Compared is everything but the times of the roster, which are the database's. A trace with an eviction horizon runs
on a server that has it, in slow motion: a millisecond of the trace is a minute there, and passes by moving the
times that the database noted.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import asyncpg
import httpx
import orjson
import pytest

from foldpoint.slug import slug
from tests.fixtures.devices import body_of, op_ids
from tests.fixtures.server import RunningServer
from tests.fixtures.vectors import ops, story, text
from tests.wire.answers import refused

TRACES = {trace["name"]: trace for trace in story("relay.json/traces")}
#: Divisible by the horizon of every trace; one of their milliseconds is minutes here.
HORIZON_MS = 3_000 * 60_000
PASS = "update device d set last_seen_ms = last_seen_ms - $2 from scope s where s.id = d.scope and s.slug = $1"

#: Steps that a Foldpoint answers otherwise than the crate, by trace and place: what it says, and why.
DEVIATIONS = {
    ("gc, truncation and checkpoints", 42): (
        "checkpoint_state_mismatch",
        "the crate's relay takes a false state; we compare it with our own fold",
    ),
    ("random 0", 58): (
        "frontier_collected",
        "the crate takes a frontier below the floor unverified; we cannot compute its state any more",
    ),
}


class Relay:
    """A scope as the crate's relay: takes the calls of a trace and gives its results in the vectors' shape."""

    def __init__(self, client: httpx.AsyncClient, scope: str, trace: Any) -> None:
        self.client, self.scope = client, scope
        self.ops, self.checkpoints = ops(trace["ops"]), trace["checkpoints"]

    async def take(self, step: Any) -> dict[str, Any]:
        response = await self._call(step)
        if response.status_code == 200:
            return {"ok": self._answer(step, response)}
        return {"err": self._error(step, response)}

    async def _call(self, step: Any) -> httpx.Response:
        sync = f"/sync/{self.scope}"
        device = f"{sync}/devices/{slug(step.get('device_id', ''))}"
        match step["call"]:
            case "register":
                return await self.client.post(device)
            case "push":
                return await self.client.post(f"{device}/ops", content=body_of(self.ops[i] for i in step["ops"]))
            case "pull":
                return await self.client.post(f"{device}/pull", content=orjson.dumps(step["since"]))
            case "ack":
                return await self.client.post(f"{device}/ack", content=orjson.dumps(step["hlc"]))
            case "checkpoint_put":
                checkpoint = self.checkpoints[step["checkpoint"]]
                return await self.client.put(f"{sync}/checkpoints", content=text(checkpoint).encode())
            case "gc":
                return await self.client.post(f"{sync}/gc")
            case name:
                paths = {"checkpoint_get": "checkpoints/latest", "stable_frontier": "stable-frontier"}
                return await self.client.get(f"{sync}/{paths.get(name, name)}")

    def _answer(self, step: Any, response: httpx.Response) -> Any:
        body = orjson.loads(response.content)
        match step["call"]:
            case "pull":
                return {"op_ids": op_ids(response), "latest_checkpoint": body["latest_checkpoint"]}
            case "checkpoint_get":
                return body and body["checkpoint_hash"]
            case _:
                return timeless(body)

    def _error(self, step: Any, response: httpx.Response) -> dict[str, Any]:
        body = refused(response, response.json()["code"], response.status_code)
        match body["code"]:
            case "foreign_ops":
                variant = {"variant": "ForeignOps", "op_device": body["op_device"]}
            case "chain_broken":
                variant = {"variant": "Chain", "detail": body["detail"]}
            case "chain_fork":
                variant = {"variant": "Fork", "seq": body["seq"]}
            case "gap":
                variant = {"variant": "Gap", "expected": body["expected"], "found": body["found"]}
            case "frontier_truncated":
                names = ("device_id", "dropped_below")
                return {"variant": "FrontierTruncated", **{name: body[name] for name in names}}
            case "checkpoint_invalid":
                names = ("expected", "actual")
                inner = {"variant": body["detail"].split(":")[0], **{name: body[name] for name in names}}
                return {"variant": "Checkpoint", "inner": inner}
            case code:
                return {"variant": code, **{k: v for k, v in body.items() if k in ("device_id", "seq")}}
        return {**variant, "device_id": step["device_id"]}


def timeless(value: Any) -> Any:
    """A roster or its entry without what only a clock knows."""
    if isinstance(value, list):
        return [timeless(entry) for entry in value]
    if isinstance(value, dict):
        return {k: v for k, v in value.items() if k not in ("added_at", "last_seen_ms")}
    return value


def expected(step: Any) -> dict[str, Any]:
    """The crate's human texts are not ours; server.md §12 has codes instead."""
    (kind, result) = next(iter(step["result"].items()))
    if kind == "ok":
        return {"ok": timeless(result)}
    result = {name: value for name, value in result.items() if name != "display"}
    if result["variant"] == "CheckpointFrontierUnverified":
        result = {"variant": "checkpoint_unverified", "device_id": result["device_id"], "seq": result["seq"]}
    return {"err": result}


async def run(relay: Relay, trace: Any, passing: Callable[[int], Awaitable[None]] | None = None) -> None:
    """Every step has the crate's result, but for the listed ones."""
    now = 0
    assert all(place < len(trace["steps"]) for name, place in DEVIATIONS if name == trace["name"])
    for index, step in enumerate(trace["steps"]):
        if passing is not None:
            await passing(step["now"] - now)
        now, result = step["now"], await relay.take(step)
        if (place := (trace["name"], index)) in DEVIATIONS:
            assert result["err"]["variant"] == DEVIATIONS[place][0]
        else:
            assert text(result) == text(expected(step)), (index, step["call"])


@pytest.mark.parametrize("name", [name for name, trace in TRACES.items() if trace["eviction_horizon_ms"] is None])
async def test_relay_trace(admin: httpx.AsyncClient, scope: str, name: str) -> None:
    await run(Relay(admin, scope, TRACES[name]), TRACES[name])


async def test_relay_traces_with_an_eviction_horizon(start_server: Callable[..., RunningServer]) -> None:
    """A millisecond of a trace takes as long as makes its horizon the server's; half a minute is the server's own."""
    server = start_server(eviction_horizon_ms=str(HORIZON_MS + 30_000))
    database = await asyncpg.connect(server.database_url)
    async with server.client() as client:
        for trace in TRACES.values():
            if horizon_ms := trace["eviction_horizon_ms"]:
                scope = slug(trace["name"])
                passing = partial(pass_time, database, scope, HORIZON_MS // horizon_ms)
                await run(Relay(client, scope, trace), trace, passing)
    await database.close()


async def pass_time(database: asyncpg.Connection, scope: str, scale: int, trace_ms: int) -> None:
    await database.execute(PASS, scope, trace_ms * scale)
