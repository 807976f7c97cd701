"""Devices that write at random and remember all they wrote."""

from collections.abc import Iterator, Sequence
from random import Random  # noqa: TID251 - seeded: a storm can be run again

import httpx

from foldpoint.canonical import Json
from foldpoint.device_log import DeviceLog
from foldpoint.op import Op
from tests.storms.fleet import Fleet

HOUR_MS = 3_600_000
#: Long before any clock of ours, so that no bound refuses a stamp.
EPOCH_MS = 1_700_000_000_000

AGENTS = ("planner", "coder", "")
RUNS = tuple(f"run-{n}" for n in range(8))
CONVERSATIONS = ("c1", "c2", "", "naïve ☕")


def body_of(ops: Sequence[Op]) -> bytes:
    return b"[" + b",".join(op.text() for op in ops) + b"]"


class Device:
    """Its clock is hours away from those of the others, so what it pushes late carries old stamps."""

    def __init__(self, name: str, dice: Random) -> None:
        self.name = name
        self.dice = dice
        self.log = DeviceLog(name)
        self.wall_ms = EPOCH_MS + dice.randrange(48) * HOUR_MS
        self.ops: list[Op] = []
        #: So many of them are acknowledged.
        self.acknowledged = 0

    def write(self, count: int = 1) -> list[Op]:
        """Author ops and keep them for the next push."""
        return [self._write(*self._thought()) for _ in range(count)]

    def say(self, text: str) -> Op:
        return self._write("conversation", {"role": "user", "content": text, "conversation_id": "c1"})

    def intend(self, agent: str, run: str, epoch: int) -> Op:
        return self._write("intent", {"id": run, "agent_id": agent, "epoch": epoch, "status": "pending"})

    def _write(self, surface: str, payload: Json) -> Op:
        self.wall_ms += self.dice.randrange(3)
        scope = self.dice.choice(["personal", "personal", "shared:acme"])
        op = self.log.append(self.wall_ms, scope, surface, payload)
        self.ops.append(op)
        return op

    def _thought(self) -> tuple[str, Json]:
        dice, number = self.dice, len(self.ops)
        shared = {"agent_id": dice.choice(AGENTS), "epoch": dice.randrange(4)}
        status = dice.choice(["pending", "pending", "committed", "failed"])
        turn = {"conversation_id": dice.choice(CONVERSATIONS), "role": dice.choice(["user", "assistant"])}
        choices: list[tuple[str, Json]] = [
            ("conversation", {**turn, "content": f"{self.name} says {number}", "timestamp": number}),
            ("knowledge", {"id": f"fact-{dice.randrange(20)}", "body": f"{self.name} {number}"}),
            ("registry:config", {"id": f"key-{dice.randrange(5)}", "value": [self.name, number]}),
            ("routing", {"sample": dice.randrange(9) / 4}),
            ("intent", {"id": dice.choice(RUNS), **shared, "status": status}),
        ]
        return dice.choice(choices)

    @property
    def unacknowledged(self) -> list[Op]:
        return self.ops[self.acknowledged :]

    def path(self, scope: str) -> str:
        return f"/sync/{scope}/devices/{self.name}/ops"

    async def push(self, fleet: Fleet, scope: str, most: int | None = None) -> httpx.Response:
        """Push what is not acknowledged, as often as it takes."""
        sent = self.unacknowledged[:most]
        response = await fleet.call("POST", self.path(scope), content=body_of(sent))
        assert response.status_code == 200, response.text
        counts = response.json()
        assert counts["accepted"] + counts["deduped"] == len(sent)
        self.acknowledged += len(sent)
        return response


def devices(number: int, dice: Random) -> list[Device]:
    return [Device(f"device-{n}", dice) for n in range(number)]


def written(all_devices: Sequence[Device]) -> list[Op]:
    return [op for device in all_devices for op in device.ops]


def batches(device: Device, total: int, most: int) -> Iterator[list[Op]]:
    """Write `total` ops in batches of a random size."""
    while (left := total - len(device.ops)) > 0:
        yield device.write(min(left, 1 + device.dice.randrange(most)))
