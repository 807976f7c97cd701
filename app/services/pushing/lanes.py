"""Pushes that wait are taken together: those of one scope, and those of several scopes with little work each."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple

from sqlalchemy.ext.asyncio import AsyncEngine

from app.away import unreachable
from app.services.keys.vault import Vault
from app.services.pushing.admitting import Share, admit, admit_free
from app.services.pushing.turns import Admitted, Batch
from app.settings import Settings

#: Ops that one transaction takes of pushes that wait for one scope, and of several scopes; at least one push.
IN_ONE_SCOPE, IN_SEVERAL = 1_000, 100
#: The event loop's turns in which a request comes from its socket to here.
TURNS_FROM_SOCKET = 3


class _Waiting(NamedTuple):
    batch: Batch
    done: asyncio.Future[Admitted]


class Lanes:
    """The pushes of one server process, by scope; of each scope, one transaction at a time.

    Scopes with little work go into one transaction, as far as they are free: it waits for nobody's lock. A scope that
    is held, or has much work, has a transaction of its own. All this only saves transactions: what keeps writers of
    a scope apart, in any number of processes, is the row lock that each transaction holds.
    """

    def __init__(self, engine: AsyncEngine, settings: Settings, vault: Vault) -> None:
        self._engine, self._settings, self._vault = engine, settings, vault
        self._waiting: dict[str, list[_Waiting]] = {}
        self._busy: set[str] = set()
        self._crossing = False
        self._arrived = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, scope: str, batch: Batch) -> Admitted:
        """Admit a batch with the others that wait. Raises the Problem it ended in."""
        done: asyncio.Future[Admitted] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(scope, []).append(_Waiting(batch, done))
        self._arrived += 1
        self._go_on(scope)
        return await done

    def _go_on(self, scope: str) -> None:
        """Start what waits for a scope, unless it is busy."""
        if scope in self._busy or scope not in self._waiting:
            return
        if not all(waiting.batch.reading.few for waiting in self._waiting[scope]):
            self._start(self._admit_alone(scope, self._next(scope)))
        elif not self._crossing:
            self._crossing = True
            self._start(self._cross())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _cross(self) -> None:
        """Admit what waits for scopes that are not busy, until nothing does."""
        try:
            await self._let_arrive()
            while shares := self._next_of_several():
                await self._admit_several(shares)
                await self._let_arrive()
        finally:
            self._crossing = False

    async def _let_arrive(self) -> None:
        """Go on once nothing arrives any more: answers that went out together soon come back as requests."""
        seen, quiet = self._arrived, 0
        while quiet < TURNS_FROM_SOCKET and sum(map(len, self._waiting.values())) < IN_SEVERAL:
            await asyncio.sleep(0)
            quiet = quiet + 1 if seen == self._arrived else 0
            seen = self._arrived

    def _next_of_several(self) -> dict[str, list[_Waiting]]:
        """What the next transaction takes, by scope; these are busy now."""
        shares: dict[str, list[_Waiting]] = {}
        ops = 0
        for scope in [scope for scope in self._waiting if scope not in self._busy]:
            shares[scope] = self._next(scope)
            ops += sum(len(waiting.batch) for waiting in shares[scope])
            if ops >= IN_SEVERAL:
                break
        return shares

    def _next(self, scope: str) -> list[_Waiting]:
        """What the next transaction takes of a scope, which is busy now."""
        self._busy.add(scope)
        waiting = self._waiting.pop(scope)
        count = ops = 0
        while count < len(waiting) and ops < IN_ONE_SCOPE:
            ops += len(waiting[count].batch)
            count += 1
        if waiting[count:]:
            self._waiting[scope] = waiting[count:]
        return waiting[:count]

    async def _admit_several(self, shares: dict[str, list[_Waiting]]) -> None:
        answers: Sequence[Sequence[Admitted | Exception] | None] = [None] * len(shares)
        try:
            each = [_share(*share) for share in shares.items()]
            answers = await admit_free(self._engine, self._settings, self._vault, each)
        except Exception as error:  # noqa: BLE001 - each scope is tried by itself, and hears of its own
            if unreachable(error):
                answers = [[error] * len(taken) for taken in shares.values()]
        for (scope, taken), given in zip(shares.items(), answers, strict=True):
            if given is None:
                self._start(self._admit_alone(scope, taken))
            else:
                _settle(taken, given)
                self._leave(scope)

    async def _admit_alone(self, scope: str, taken: Sequence[_Waiting]) -> None:
        await self._admit(scope, taken)
        self._leave(scope)

    async def _admit(self, scope: str, taken: Sequence[_Waiting]) -> bool:
        """Whether the database was reached. What fails together is tried push by push: none fails for its neighbour."""
        try:
            _settle(taken, await admit(self._engine, self._settings, self._vault, _share(scope, taken)))
        except Exception as error:  # noqa: BLE001 - whoever waits must hear of it, and raises it
            if len(taken) == 1 or unreachable(error):
                _settle(taken, [error] * len(taken))
                return not unreachable(error)
            for i, waiting in enumerate(taken):
                if not await self._admit(scope, [waiting]):
                    _settle(taken[i:], [error] * len(taken[i:]))
                    return False
        return True

    def _leave(self, scope: str) -> None:
        self._busy.discard(scope)
        self._go_on(scope)


def _share(scope: str, taken: Sequence[_Waiting]) -> Share:
    return Share(scope, [waiting.batch for waiting in taken])


def _settle(taken: Sequence[_Waiting], answers: Sequence[Admitted | Exception]) -> None:
    for (_, done), answer in zip(taken, answers, strict=True):
        if done.done():
            continue
        if isinstance(answer, Exception):
            done.set_exception(answer)
        else:
            done.set_result(answer)
