"""Streams of the projections while devices push into them: a snapshot is never wrong (server.md §8)."""

import asyncio
from collections.abc import Iterable
from random import Random  # noqa: TID251 - the type of `dice`

from sqlalchemy.ext.asyncio import AsyncEngine

from app.services.projections import journals
from app.services.projections.streams import Streams
from app.services.verification.verifying import verify
from foldpoint.journal.fold import fold_journal
from foldpoint.op import Op
from foldpoint.state import record_of
from tests.fixtures.devices import Device, NewDevice
from tests.fixtures.projections import enqueue, journal, number_of, read_stream, session_of

BATCH = 90


async def test_while_devices_push_and_readers_keep_snapshots_a_stream_is_the_fold_of_its_records(
    device: NewDevice, scope: str, dice: Random, engine_behind: AsyncEngine
) -> None:
    devices = [device(f"d{n}") for n in range(3)]
    for each in devices:
        enqueue(each, "first")
        await each.push()
        write_some(each, dice)
    number, streams = await number_of(engine_behind, scope), Streams(engine_behind)
    pushed = asyncio.gather(*(_push_slowly(each) for each in devices))
    reads = 0
    while not pushed.done():
        await streams.keep(await read_stream(streams, number, journals.FOLD, "s"))
        reads += 1
    await pushed
    await streams.keep(await read_stream(streams, number, journals.FOLD, "s"))
    expected = fold_journal(sorted(record_of(op) for each in devices for op in each.ops))
    assert (await session_of(streams, number)).to_json() == expected.to_json()
    assert reads > 1
    assert [fault async for fault in verify(engine_behind, number)] == []


async def _push_slowly(device: Device) -> None:
    for ops in _batches(device.ops[device.pushed :]):
        assert (await device.offer(ops)).status_code == 200


def _batches(ops: list[Op]) -> Iterable[list[Op]]:
    return (ops[start : start + BATCH] for start in range(0, len(ops), BATCH))


def write_some(device: Device, dice: Random, count: int = 900) -> None:
    """Entries of a journal that nobody says to have seen; the devices' clocks are alike."""
    for n in range(count):
        device.wall_ms += dice.randrange(3)
        kind = dice.random()
        if kind < 0.6:
            enqueue(device, f"{device.name}-{n}")
        elif kind < 0.8:
            journal(device, {"op": "dequeue", "queue": "steer", "count": dice.randrange(3)}, source=n)
        elif kind < 0.9:
            journal(device, {"op": "rename", "from": "x", "to": f"{device.name}-{n}"}, source=n)
        else:
            journal(device, {"op": "unheard-of"}, source=n)
