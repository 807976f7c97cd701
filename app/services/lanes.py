"""Work that waits for one scope is taken together."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence, Sized
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from app.problems import Problem

#: So much is taken together, and at least one piece.
TOGETHER = 1_000

Work = TypeVar("Work", bound=Sized)
Done = TypeVar("Done")


@dataclass(slots=True)
class _Lane(Generic[Work, Done]):
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: list[tuple[Work, asyncio.Future[Done]]] = field(default_factory=list)


class Lanes(Generic[Work, Done]):
    """One lane per scope in this process: whoever gets its turn takes all that wait, in one transaction.

    This only saves commits. What keeps writers of a scope apart, in any number of processes, is the row
    lock that `take` holds in the database.
    """

    def __init__(self, take: Callable[[str, Sequence[Work]], Awaitable[Sequence[Done | Problem]]]) -> None:
        self._take = take
        self._lanes: dict[str, _Lane[Work, Done]] = {}

    async def run(self, scope: str, work: Work) -> Done:
        """Do one piece of work with the others that wait. Raises the Problem it ended in."""
        lane = self._lanes.setdefault(scope, _Lane())
        done: asyncio.Future[Done] = asyncio.get_running_loop().create_future()
        lane.waiting.append((work, done))
        try:
            async with lane.turn:
                while not done.done():
                    await self._take_waiting(scope, lane)
        finally:
            lane.waiting = [entry for entry in lane.waiting if entry[1] is not done]
            if not lane.waiting and not lane.turn.locked():
                self._lanes.pop(scope, None)
        return await done

    async def _take_waiting(self, scope: str, lane: _Lane[Work, Done]) -> None:
        taken = self._next(lane)
        try:
            answers = await self._take(scope, [work for work, _ in taken])
        except Exception as error:  # noqa: BLE001 - whoever waits must hear of it, and raises it
            for _, done in taken:
                _settle(done, error)
        except BaseException:
            for _, done in taken:
                _settle(done, Problem("unavailable", "the server is stopping"))
            raise
        else:
            for (_, done), answer in zip(taken, answers, strict=True):
                _settle(done, answer)

    @staticmethod
    def _next(lane: _Lane[Work, Done]) -> list[tuple[Work, asyncio.Future[Done]]]:
        count = total = 0
        for work, _ in lane.waiting:
            total += len(work)
            if count and total > TOGETHER:
                break
            count += 1
        taken, lane.waiting = lane.waiting[:count], lane.waiting[count:]
        return taken


def _settle(done: asyncio.Future[Done], answer: Done | Exception) -> None:
    if done.done():
        return
    if isinstance(answer, Exception):
        done.set_exception(answer)
    else:
        done.set_result(answer)
