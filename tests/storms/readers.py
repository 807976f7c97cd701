"""Readers that page on and on, and notice an op that is passed over or comes twice."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from random import Random  # noqa: TID251 - the type of `dice`

import msgspec

from foldpoint.op import Op
from foldpoint.op_text import read_op
from tests.storms.fleet import Fleet


class PageAnswer(msgspec.Struct):
    ops: list[msgspec.Raw]
    cursor: str
    caught_up: bool


class PullAnswer(msgspec.Struct):
    ops: list[msgspec.Raw]


class Reader(ABC):
    """Everything it was given, in the order it came; `rounds` counts how often it had caught up."""

    def __init__(self, fleet: Fleet, scope: str) -> None:
        self.fleet, self.scope = fleet, scope
        self.ops: list[Op] = []
        self.reached: dict[str, int] = {}
        self.rounds = 0
        self.pages = 0

    @abstractmethod
    async def read(self) -> bool:
        """Read on; whether it has caught up."""

    async def catch_up(self) -> None:
        while not await self.read():
            pass

    async def follow(self) -> None:
        """Read for ever."""
        while True:
            await self.read()

    def take(self, texts: Sequence[bytes | msgspec.Raw], *, caught_up: bool) -> None:
        for text in texts:
            op = read_op(bytes(text))
            assert op.seq == self.reached.get(op.device_id, -1) + 1, (op.device_id, op.seq, self.reached)
            self.reached[op.device_id] = op.seq
            self.ops.append(op)
        self.pages += 1
        self.rounds += caught_up


class Pager(Reader):
    """By the cursors of `/ops`, as JSON or as lines."""

    def __init__(
        self, fleet: Fleet, scope: str, dice: Random, cursor: str | None = None, limits: Sequence[int] = (1, 7, 100)
    ) -> None:
        super().__init__(fleet, scope)
        self.dice = dice
        self.cursor = cursor
        self.limits = limits
        #: Every cursor it ever stored, with how many ops it had then.
        self.stored: list[tuple[str, int]] = []

    async def read(self) -> bool:
        asked = {"limit": str(self.dice.choice(self.limits)), **({"cursor": self.cursor} if self.cursor else {})}
        as_lines = self.dice.random() < 0.5
        accept = {"Accept": "application/x-ndjson" if as_lines else "application/json"}
        response = await self.fleet.call("GET", f"/v1/scopes/{self.scope}/ops", headers=accept, params=asked)
        assert response.status_code == 200, response.text
        if as_lines:
            texts: Sequence[bytes | msgspec.Raw] = response.content.splitlines()
            self.cursor = response.headers["Foldpoint-Cursor"]
            caught_up = response.headers["Foldpoint-Caught-Up"] == "true"
        else:
            answer = msgspec.json.decode(response.content, type=PageAnswer)
            texts, self.cursor, caught_up = answer.ops, answer.cursor, answer.caught_up
        self.take(texts, caught_up=caught_up)
        self.stored.append((self.cursor, len(self.ops)))
        return caught_up


class Puller(Reader):
    """As a device pulls: all above its frontier, in one answer."""

    async def read(self) -> bool:
        path = f"/sync/{self.scope}/devices/puller/pull"
        response = await self.fleet.call("POST", path, json=self.reached)
        assert response.status_code == 200, response.text
        self.take(msgspec.json.decode(response.content, type=PullAnswer).ops, caught_up=True)
        return True
