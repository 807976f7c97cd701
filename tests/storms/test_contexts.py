"""Contexts while devices and hosted writers change them, on two server processes (stored-message.md §11)."""

import asyncio
from random import Random  # noqa: TID251 - the type of `dice`

import httpx
from sqlalchemy.ext.asyncio import AsyncEngine

from app.services.verification.verifying import verify
from foldpoint.canonical import Json
from foldpoint.op_text import read_op
from foldpoint.state import record_of
from foldpoint.stored_message.session import fold
from tests.fixtures.contexts import CONTEXT, ask, move, put, remove, write
from tests.fixtures.devices import Device, NewDevice, op_texts
from tests.fixtures.projections import carried, number_of
from tests.fixtures.server import RunningServer
from tests.wire.answers import read

OPS, BATCH, MESSAGES = 300, 50, 60


async def test_while_all_write_and_read_a_context_is_the_fold_of_what_came(
    admin: httpx.AsyncClient,
    device: NewDevice,
    scope: str,
    dice: Random,
    engine_behind: AsyncEngine,
    second_server: RunningServer,
) -> None:
    devices = [device(f"d{n}") for n in range(3)]
    for one in devices:
        for _ in range(OPS):
            one.wall_ms += dice.randrange(2) - 1
            carried(one, CONTEXT, {"session": "s", **any_op(dice)})
    read(await write(admin, scope, put("first")))
    async with second_server.client() as other:
        calls = [[any_op(dice) for _ in range(dice.randint(1, 5))] for _ in range(30)]
        writing = [write_all(one, scope, calls[n::2]) for n, one in enumerate((admin, other))]
        working = asyncio.gather(*map(push_slowly, devices), *writing)
        while not working.done():
            for client in (admin, other):
                read(await ask(client, scope))
        await working
        told = [read(await ask(client, scope)) for client in (admin, other)]
    ops = [read_op(text) for text in op_texts(await device("reader").pull())]
    expected = fold(record_of(op) for op in ops)
    for held in told:
        assert held["message_ids"] == expected.message_ids()
        assert held["messages"] == expected.messages()
        assert held["pending"] == sorted(expected.pending)
    assert [fault async for fault in verify(engine_behind, await number_of(engine_behind, scope))] == []


def any_op(dice: Random) -> dict[str, Json]:
    """Of few messages and places, so that devices write the same ops again."""
    name, pos, kind = f"m{dice.randrange(MESSAGES)}", dice.randrange(3), dice.random()
    if kind < 0.6:
        return put(name, pos, tokens=dice.randrange(3))
    return move(name, dice.choice(["system", "history"]), pos) if kind < 0.98 else remove(name)


async def push_slowly(device: Device) -> None:
    for start in range(0, len(device.ops), BATCH):
        read(await device.offer(device.ops[start : start + BATCH]))


async def write_all(client: httpx.AsyncClient, scope: str, calls: list[list[dict[str, Json]]]) -> None:
    """Hosted calls; one that names a message which was removed is refused."""
    for ops in calls:
        assert (await write(client, scope, *ops)).status_code in (200, 422)
