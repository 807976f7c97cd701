"""R13, R37-R39: leases under contention, by the database clock as it is once the row is locked."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from random import Random  # noqa: TID251 - the type of `dice`
from typing import Any

import pytest

from tests.storms.devices import body_of, devices
from tests.storms.fleet import Fleet
from tests.storms.stored import connected, held, until, until_waiting

CONTENDERS = 20
AGENT = "planner"
MINUTE_MS = 60_000

LEASE_ROW = "select 1 from lease where scope = (select id from scope where slug = $1) for update"
NOW_MS = "select (extract(epoch from clock_timestamp()) * 1000)::bigint"


class Contender:
    """One device that wants the agent's lease, on one of the two APIs."""

    def __init__(self, fleet: Fleet, scope: str, number: int) -> None:
        self.fleet, self.scope, self.own = fleet, scope, number % 2 == 1
        self.name = f"contender-{number}"

    async def acquire(self, ttl_ms: int = MINUTE_MS) -> int | None:
        """The epoch that was granted; None while somebody else holds the lease."""
        response = await self._ask("acquire", ttl_ms=ttl_ms)
        answer = response.json()
        if self.own:
            assert response.status_code == 200 or answer["code"] == "lease_held", answer
            return answer["lease"]["epoch"] if response.status_code == 200 else None
        assert response.status_code == 200, answer
        return answer["Granted"]["epoch"] if "Granted" in answer else None

    async def renew(self, epoch: int) -> bool:
        """Whether it still held the lease."""
        response = await self._ask("renew", epoch=epoch, ttl_ms=MINUTE_MS)
        answer = response.json()
        lease = answer.get("lease") if self.own else answer.get("Granted")
        assert lease is None or (lease["epoch"], lease["holder"]) == (epoch, self.name)
        return lease is not None

    async def release(self, epoch: int) -> bool:
        response = await self._ask("release", epoch=epoch)
        return response.status_code == 200 and (self.own or response.json() == "Released")

    async def _ask(self, what: str, **more: int) -> Any:
        body = {"device_id": self.name, **more}
        if self.own:
            path = f"/v1/scopes/{self.scope}/leases/{what}"
            return await self.fleet.call("POST", path, json={"agent_id": AGENT, **body})
        return await self.fleet.call("POST", f"/sync/{self.scope}/leases/{AGENT}/{what}", json=body)


def contenders(fleet: Fleet, scope: str) -> list[Contender]:
    return [Contender(fleet, scope, number) for number in range(CONTENDERS)]


async def test_an_epoch_is_granted_once_and_above_every_fence_that_was_pushed(
    fleet: Fleet, dice: Random, scope: str
) -> None:
    (device,) = devices(1, dice)
    granted: list[int] = []
    holders: set[str] = set()
    fence = 0

    async def contend(contender: Contender) -> None:
        for _ in range(6):
            floor = fence
            epoch = await contender.acquire()
            if epoch is None:
                continue
            assert not holders, f"{contender.name} was granted what {holders} holds"
            holders.add(contender.name)
            assert epoch > floor
            granted.append(epoch)
            assert await contender.acquire() is None
            assert await contender.renew(epoch)
            holders.remove(contender.name)
            assert await contender.release(epoch)
            assert not await contender.renew(epoch)

    async def raise_fences() -> None:
        nonlocal fence
        for claimed in range(10, 100, 10):
            op = device.intend(AGENT, "run-1", claimed)
            await device.push(fleet, scope)
            fence = claimed
            assert op.seq == device.acknowledged - 1

    await fleet.call("POST", device.path(scope), content=body_of([]))
    await asyncio.gather(*(contend(contender) for contender in contenders(fleet, scope)), raise_fences())
    assert granted
    assert granted == sorted(set(granted))


async def test_one_of_many_steals_an_expired_lease_unless_its_holder_renews_it(
    fleet: Fleet, dice: Random, scope: str
) -> None:
    (device,) = devices(1, dice)
    await fleet.call("POST", device.path(scope), content=body_of([]))
    holder, *others = contenders(fleet, scope)
    outcomes: list[bool] = []
    for _ in range(8):
        epoch = await holder.acquire(ttl_ms=0)
        assert epoch is not None
        calls: list[Awaitable[Any]] = [contender.acquire() for contender in others]
        calls.insert(dice.randrange(3), holder.renew(epoch))
        answers = await asyncio.gather(*calls)
        renewed = next(answer for answer in answers if isinstance(answer, bool))
        stolen = [
            (contender, answer)
            for contender, answer in zip(others, [a for a in answers if not isinstance(a, bool)], strict=True)
            if answer is not None
        ]
        assert len(stolen) + renewed == 1
        outcomes.append(renewed)
        for contender, new_epoch in stolen:
            assert new_epoch == epoch + 1
            assert not await holder.release(epoch)
            assert await contender.release(new_epoch)
        if renewed:
            assert await holder.release(epoch)
    print(f"renewed {sum(outcomes)} of {len(outcomes)} times")  # noqa: T201 - shown when the test fails


async def until_clock_passes(url: str, time_ms: int) -> None:
    async with connected(url) as connection:

        async def passed() -> bool:
            return bool(await connection.fetchval(NOW_MS) > time_ms)

        await until(passed)


async def expires_at(fleet: Fleet, scope: str) -> int:
    answer = (await fleet.call("GET", f"/sync/{scope}/leases/{AGENT}")).json()
    return int(answer["Current"]["expires_at_ms"])


@pytest.mark.parametrize("number", [0, 1], ids=["sync", "v1"])
async def test_expiry_is_judged_when_the_row_is_locked_not_when_the_call_began(
    fleet: Fleet, dice: Random, scope: str, number: int
) -> None:
    (device,) = devices(1, dice)
    await fleet.call("POST", device.path(scope), content=body_of([]))
    holder, rival = Contender(fleet, scope, number), Contender(fleet, scope, number + 2)
    url = fleet.database_url
    epoch = await holder.acquire(ttl_ms=1_500)
    assert epoch is not None
    async with held(url, LEASE_ROW, scope) as outside:
        waiting = asyncio.create_task(rival.acquire())
        await until_waiting(url, 1)
        await until_clock_passes(url, await expires_at(fleet, scope))
        released_at = await outside.fetchval(NOW_MS)
    assert await waiting == epoch + 1
    assert await expires_at(fleet, scope) >= released_at + MINUTE_MS


@pytest.mark.parametrize("call", [Contender.renew, Contender.release], ids=["renew", "release"])
async def test_what_waits_behind_a_theft_is_told_that_it_lost(
    fleet: Fleet, dice: Random, scope: str, call: Callable[[Contender, int], Coroutine[Any, Any, bool]]
) -> None:
    (device,) = devices(1, dice)
    await fleet.call("POST", device.path(scope), content=body_of([]))
    holder, rival = Contender(fleet, scope, 0), Contender(fleet, scope, 1)
    url = fleet.database_url
    epoch = await holder.acquire(ttl_ms=0)
    assert epoch is not None
    async with held(url, LEASE_ROW, scope):
        stealing = asyncio.create_task(rival.acquire())
        await until_waiting(url, 1)
        late = asyncio.create_task(call(holder, epoch))
        await until_waiting(url, 2)
    assert await stealing == epoch + 1
    assert await late is False
    assert await rival.renew(epoch + 1)
