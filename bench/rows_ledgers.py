"""P11: a read of a long run beside one of a short run, new records coming in between."""

from collections.abc import AsyncGenerator, Iterator
from itertools import count
from statistics import median

import orjson

from bench.corpus import START_MS, body_of
from bench.figures import Ratio, Sample
from bench.talk import Dice, answer, question
from bench.wire import Connection, ask_all, connections
from bench.world import World, opened_scope, pushes, seconds
from foldpoint.canonical import Json
from foldpoint.device_log import DeviceLog
from foldpoint.op import Op
from foldpoint.run_ledger import SURFACE_TAG
from foldpoint.run_ledger.entry import entry_payload
from foldpoint.run_ledger.wire import Event, RecordedEvent

SHORT_RUN = 1_000
BATCH = 1_000
MS = 1_000


async def reads(world: World) -> AsyncGenerator[Sample, None]:
    """A record is pushed to each run, then each is read, in turns on one connection; medians of a round."""
    async with connections(world.server.address, 1) as (connection,):
        scope = await opened_scope(world, connection, "runs", "laptop", "phone")
        long, short = _Run("long", "laptop"), _Run("short", "phone")
        for run, records in ((long, world.size.turns), (short, SHORT_RUN)):
            for _ in range(records // BATCH):
                body = body_of(run.next_op() for _ in range(BATCH))
                await ask_all(connection, pushes(world, scope, run.device, [body]))
            told = orjson.loads(await connection.ask(_read(world, scope, run)))
            assert told["state"]["next_seq"] == records, "the run is folded otherwise"
        yield {}
        for _ in count():
            took: dict[str, list[float]] = {"long": [], "short": []}
            for _ in range(world.size.tails):
                for run in (long, short):
                    took[run.name].append(MS * await _after_another(world, connection, scope, run))
            yield {"P11": Ratio(median(took["long"]), median(took["short"]))}


async def _after_another(world: World, connection: Connection, scope: str, run: "_Run") -> float:
    await ask_all(connection, pushes(world, scope, run.device, [body_of(iter([run.next_op()]))]))
    return await seconds(connection.ask(_read(world, scope, run)))


def _read(world: World, scope: str, run: "_Run") -> bytes:
    return world.server.address.get(f"/v1/scopes/{scope}/run-ledgers?run={run.name}")


class _Run:
    """A run without an end, turn after turn, as its device records it."""

    def __init__(self, name: str, device: str) -> None:
        self.name, self.device = name, device
        self._dice, self._log, self._events = Dice(1), DeviceLog(device), self._told()

    def next_op(self) -> Op:
        seq = self._log.next_seq
        payload = entry_payload(self.device, RecordedEvent(seq, START_MS + seq, next(self._events)))
        return self._log.append(START_MS + seq, "personal", SURFACE_TAG, payload)

    def _told(self) -> Iterator[Event]:
        run: dict[str, Json] = {"run_id": self.name}
        yield {"event": "run_started", **run, "agent_id": "travel"}
        for step in count():
            turn = {**run, "turn_id": self._dice.name()}
            asked: Json = {
                "lane": "current_task", "source": "chat", "content": question(self._dice), "estimated_tokens": 12,
            }  # fmt: skip
            output: Json = {"role": "assistant", "content": answer(self._dice)}
            said = {"output": output, "proposed_calls": [], "usage": {"input_tokens": 12, "output_tokens": 9}}
            yield {"event": "context_built", **turn, "context": {"token_budget": 100, "fragments": [asked]}}
            yield {"event": "model_requested", **turn, "step": step, "model": "example"}
            yield {"event": "model_responded", **turn, "step": step, **said}
