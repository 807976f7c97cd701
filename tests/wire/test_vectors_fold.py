"""The golden states, transcripts and intents of the original crate, asked of a server that was pushed their ops.

Ops arrive a few at a time, device after device, so that every answer comes from records that were folded in steps.
"""

from asyncio import Semaphore, gather
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import orjson
import pytest

from foldpoint.op import Op
from foldpoint.slug import slug
from tests.fixtures.devices import body_of, checkpoint_text
from tests.fixtures.vectors import ops, section, text
from tests.wire.answers import read

#: Cases that say nothing of a server, by name.
LEFT_OUT = {
    "equal hlc, op_id tie-break (unverifiable input)": "two ops hold one seq, which a push refuses as a fork",
    "same op_id, different content (unverifiable input)": "an id that does not recompute is refused",
    "device id byte order": "one device has the empty id, which no path of the wire can name",
    "sealed ops folded without a key": "the server folds no sealed op; the crate's fold does not know better",
}
Check = Callable[["Asked", Any], Awaitable[None]]
#: Cases asked at once; a server has a bounded pool.
AT_ONCE = 6


def is_asked(index: int, name: str) -> bool:
    """All that a person thought of, and every third of the many random ones; tests/core folds them all."""
    return name not in LEFT_OUT and (not name.startswith("random") or index % 3 == 0)


async def each_case(place: str, admin: httpx.AsyncClient, scope: str, check: Check) -> None:
    """Check every case of a section, each in a scope of its own."""
    turns = Semaphore(AT_ONCE)

    async def one(index: int, case: Any) -> None:
        async with turns:
            own = f"{scope}-{index}"
            try:
                await push(admin, own, ops(case["ops"]))
                await check(Asked(admin, own), case)
            except AssertionError as error:
                error.add_note(f"{place}/{index} {case['name']}")
                raise

    cases = enumerate(section(place))
    await gather(*(one(index, case) for index, case in cases if is_asked(index, case["name"])))


async def push(client: httpx.AsyncClient, scope: str, log: list[Op]) -> None:
    chains: dict[str, list[Op]] = {}
    for op in {op.op_id: op for op in log}.values():
        chains.setdefault(op.device_id, []).append(op)
    for chain in chains.values():
        chain.sort(key=lambda op: op.seq)
    for start in range(0, max(map(len, chains.values()), default=1), 8):
        for name, chain in (chains or {"nobody": []}).items():
            sent = chain[max(0, start - 1) : start + 8]
            response = await client.post(f"/sync/{scope}/devices/{slug(name)}/ops", content=body_of(sent))
            assert response.status_code == 200, response.text


class Asked:
    """A scope's answers in the vectors' shape."""

    def __init__(self, client: httpx.AsyncClient, scope: str) -> None:
        self.client, self.base = client, f"/v1/scopes/{scope}"

    async def get(self, path: str, **params: Any) -> Any:
        return read(await self.client.get(self.base + path, params=params))

    async def conversations(self) -> list[str]:
        return [entry["conversation_id"] for entry in (await self.get("/conversations"))["conversations"]]

    async def transcript(self, name: str) -> Any:
        return (await self.get("/transcript", conversation=name))["turns"]

    async def messages(self, name: str) -> Any:
        return (await self.get("/resume", conversation=name))["messages"]

    async def entries(self, tag: str) -> Any:
        response = await self.client.get(f"{self.base}/log/{tag}")
        return [] if response.status_code == 404 else read(response)["records"]

    async def intent(self, agent: str, run: str, expected: Any) -> Any:
        """Who holds a run; the whole state shows already that nobody else does."""
        if expected[agent][run] is None and agent != "nobody":
            return None
        return (await self.get("/intent", agent=agent, run=run))["record"]

    async def committed(self, runs: Any) -> Any:
        """The op that committed each run of each agent."""
        pairs = [{"agent_id": agent, "run_id": run} for agent in runs for run in runs[agent]]
        response = await self.client.post(f"{self.base}/committed-runs/lookup", json={"runs": pairs})
        found = iter(read(response)["runs"])
        return {
            agent: {run: (record := next(found)["record"]) and record["op_id"] for run in runs[agent]} for agent in runs
        }

    async def intents(self, runs: Any) -> dict[str, Any]:
        """What a case asks of intents, for its agents and their runs."""
        return {
            "committed_run_op_id": await self.committed(runs),
            "committed_run_ids": {agent: (await self.get("/committed-runs", agent=agent))["run_ids"] for agent in runs},
            "fencing_epoch": {agent: (await self.get("/agents", agent=agent))["fencing_epoch"] for agent in runs},
            "intent": {agent: {run: await self.intent(agent, run, runs) for run in runs[agent]} for agent in runs},
        }


async def check_fold(asked: Asked, case: Any) -> None:
    queries = case["queries"]
    state = await asked.get("/state")
    assert text(state["state"]) == text(case["state"])
    assert state["state_hash"] == case["state_hash"]
    for query, answer in (await asked.intents(queries["intent"])).items():
        assert text(answer) == text(queries[query]), query
    assert await asked.conversations() == queries["conversation_ids"]
    for name, turns in queries["transcript"].items():
        assert text(await asked.transcript(name)) == text(turns), name
    for name, messages in queries["resume_messages"].items():
        assert text(await asked.messages(name)) == text(messages), name
    for tag, entries in queries["log_entries"].items():
        if tag != "declagent":  # no log in the crate; ours lists its records
            found = await asked.entries(tag)
            in_full = not entries or isinstance(entries[0], dict)
            assert text(found if in_full else [entry["op_id"] for entry in found]) == text(entries), tag


async def check_intents(asked: Asked, case: Any) -> None:
    state = await asked.get("/state")
    assert text(state["state"]["intents"]) == text(case["intents_state"])
    assert state["state_hash"] == case["state_hash"]
    assert await asked.committed(case["committed_run_op_id"]) == case["committed_run_op_id"]


async def check_conversations(asked: Asked, case: Any) -> None:
    assert await asked.conversations() == case["conversation_ids"]
    for name, expected in case["conversations"].items():
        assert text(await asked.transcript(name)) == text(expected["transcript"]), name
        assert text(await asked.messages(name)) == text(expected["resume_messages"]), name


@pytest.mark.parametrize("file", ["fold_small", "fold_random"])
async def test_fold(admin: httpx.AsyncClient, scope: str, file: str) -> None:
    await each_case(f"{file}.json/cases", admin, scope, check_fold)


async def test_fold_of_intents(admin: httpx.AsyncClient, scope: str) -> None:
    await each_case("intents.json/cases", admin, scope, check_intents)


async def test_transcripts_and_the_messages_to_resume_with(admin: httpx.AsyncClient, scope: str) -> None:
    await each_case("resume.json/cases", admin, scope, check_conversations)


async def test_fold_at_a_frontier(admin: httpx.AsyncClient, scope: str) -> None:
    case = section("incremental.json/fold_at")
    await push(admin, scope, ops(case["ops"]))
    asked = Asked(admin, scope)
    assert (await asked.get("/state/hash"))["frontier"] == case["frontier_of"]
    for at in case["cases"]:
        state = await asked.get("/state", at=orjson.dumps(at["frontier"]).decode())
        assert text(state["state"]) == text(at["state"]), at["name"]
        assert (state["state_hash"], state["frontier"]) == (at["state_hash"], at["frontier"])


async def check_checkpoint(asked: Asked, case: Any) -> None:
    """Both hashes and the canonical text: what the crate makes of the same ops."""
    made = read(await asked.client.post(f"{asked.base}/checkpoints"))
    assert made["state_hash"] == case["state_hash"]
    stored = await asked.client.get(f"{asked.base}/checkpoints/{made['checkpoint_hash']}")
    assert stored.content == checkpoint_text({op.op_id: op for op in ops(case["ops"])}.values())


async def test_the_servers_own_checkpoints_are_the_crates(admin: httpx.AsyncClient, scope: str) -> None:
    await each_case("fold_random.json/cases", admin, scope, check_checkpoint)
