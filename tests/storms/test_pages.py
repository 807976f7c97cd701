"""R01-R04, R07: the pages that a reader gets by its stored cursors are the committed ops, whatever commits late."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from random import Random  # noqa: TID251 - the type of `dice`
from typing import Any

import pytest

from foldpoint.op import Op
from tests.storms.devices import Device, body_of, devices, written
from tests.storms.fleet import Fleet
from tests.storms.readers import Pager, Puller, Reader
from tests.storms.stored import check, connected, held_device, held_scope, until, until_waiting


async def write_and_push(fleet: Fleet, scope: str, device: Device, times: int) -> None:
    for _ in range(times):
        device.write(1 + device.dice.randrange(6))
        await device.push(fleet, scope)


class Following:
    """Readers that read on in the background until the block ends; what one of them notices is raised."""

    def __init__(self, readers: Sequence[Reader]) -> None:
        self.readers = readers
        self.tasks: list[asyncio.Task[None]] = []

    def __enter__(self) -> "Following":
        self.tasks = [asyncio.create_task(reader.follow()) for reader in self.readers]
        return self

    def __exit__(self, *_: object) -> None:
        for task in self.tasks:
            task.cancel()

    async def rounds_more(self, number: int = 2) -> None:
        """Wait until every reader has caught up so many times more."""
        goal = [reader.rounds + number for reader in self.readers]

        async def reached() -> bool:
            for task in self.tasks:
                if task.done():
                    task.result()
            return all(reader.rounds >= rounds for reader, rounds in zip(self.readers, goal, strict=True))

        await until(reached)


def hold(url: str, scope: str, device: Device, where: str) -> AbstractAsyncContextManager[Any]:
    return held_scope(url, scope) if where == "before the insert" else held_device(url, scope, device.name)


@pytest.mark.parametrize("where", ["before the insert", "before the commit"])
async def test_R01_R04_pages_are_the_committed_ops_while_pushes_hang_and_servers_come_and_go(
    own_fleet: Fleet, dice: Random, scope: str, where: str
) -> None:
    fleet, scopes = own_fleet, [f"{scope}_{n}" for n in range(3)]
    await fleet.start(2)
    crews = {name: devices(3, dice) for name in scopes}
    everybody = [(name, device) for name, crew in crews.items() for device in crew]
    await asyncio.gather(*(write_and_push(fleet, name, device, 1) for name, device in everybody))
    readers: list[Reader] = [Pager(fleet, name, dice) for name in scopes] + [Puller(fleet, name) for name in scopes]
    slow, quick = scopes[0], everybody[3:]
    with Following(readers) as following:
        async with hold(fleet.database_url, slow, crews[slow][0], where):
            stuck = [asyncio.create_task(write_and_push(fleet, slow, device, 3)) for device in crews[slow]]
            await until_waiting(fleet.database_url, 1)
            await asyncio.gather(*(write_and_push(fleet, name, device, 3) for name, device in quick))
            await following.rounds_more()
            await fleet.start()
            await asyncio.gather(*(write_and_push(fleet, name, device, 2) for name, device in quick))
            fleet.kill()
            await following.rounds_more()
            assert not stuck[0].done(), "it is held; its neighbours go on once it gave up for a while"
        await asyncio.gather(*stuck, *(write_and_push(fleet, name, device, 2) for name, device in quick))
        await following.rounds_more()
    for reader in readers:
        assert {op.op_id for op in reader.ops} == {op.op_id for op in written(crews[reader.scope])}
        assert len(reader.ops) == len(written(crews[reader.scope]))
    for name in scopes:
        await check(fleet, name, written(crews[name]))


async def test_R01_an_op_with_an_old_stamp_reaches_a_reader_that_is_past_it(
    fleet: Fleet, dice: Random, scope: str
) -> None:
    early, late = devices(2, dice)
    early.wall_ms, late.wall_ms = late.wall_ms, late.wall_ms + 1_000_000
    reader = Pager(fleet, scope, dice)
    late.write(5)
    await late.push(fleet, scope)
    await reader.catch_up()
    early.write(5)
    await early.push(fleet, scope)
    await reader.catch_up()
    assert [op.op_id for op in reader.ops] == [op.op_id for op in [*late.ops, *early.ops]]
    assert max(op.hlc for op in early.ops) < min(op.hlc for op in late.ops)


async def test_R01_any_stored_cursor_gives_exactly_what_was_not_read_before_it(
    fleet: Fleet, dice: Random, scope: str
) -> None:
    crew = devices(4, dice)
    reader = Pager(fleet, scope, dice)
    for device in crew * 3:
        await write_and_push(fleet, scope, device, 2)
        await reader.read()
    await reader.catch_up()
    for cursor, had in dice.sample(reader.stored, 5):
        again = Pager(fleet, scope, dice, cursor)
        again.reached = _reached(reader.ops[:had])
        await again.catch_up()
        assert sorted(op.text() for op in again.ops) == sorted(op.text() for op in reader.ops[had:])


def _reached(ops: Sequence[Op]) -> dict[str, int]:
    return {op.device_id: op.seq for op in ops}


IDLE = {
    "an xid": "select pg_current_xact_id()",
    "a row of another scope": "insert into scope (slug) values ('elsewhere')",
    "an old snapshot": "select count(*) from op",
}


@pytest.mark.parametrize("idle", IDLE.values(), ids=IDLE.keys())
async def test_R03_an_unrelated_open_transaction_delays_nothing(
    fleet: Fleet, dice: Random, scope: str, idle: str
) -> None:
    (device,) = devices(1, dice)
    reader, puller = Pager(fleet, scope, dice), Puller(fleet, scope)
    async with connected(fleet.database_url) as connection:
        transaction = connection.transaction(isolation="repeatable_read")
        await transaction.start()
        await connection.execute(idle)
        await write_and_push(fleet, scope, device, 2)
        await reader.catch_up()
        await puller.catch_up()
        await transaction.rollback()
    assert [op.op_id for op in reader.ops] == [op.op_id for op in puller.ops] == [op.op_id for op in device.ops]


async def test_R07_the_answer_to_a_push_moves_no_reader(fleet: Fleet, dice: Random, scope: str) -> None:
    one, other = devices(2, dice)
    await write_and_push(fleet, scope, other, 1)
    one.write(3)
    response = await fleet.once("POST", one.path(scope), content=body_of(one.ops))
    assert response.json() == {"accepted": 3, "deduped": 0}
    response = await fleet.once("POST", f"/v1/scopes/{scope}/devices/{one.name}/ops", content=body_of(one.ops))
    assert response.json().keys() == {"results", "accepted", "deduped"}
