"""What several devices write, having seen some of each other, in whatever order it arrives (journal.md §8.5)."""

from random import Random  # noqa: TID251 - seeded: a history can be run again

import httpx
import pytest

from foldpoint.journal.fold import fold_journal
from tests.core.journal_histories import DEVICES, long_history, written
from tests.fixtures.devices import Device
from tests.fixtures.journal_vectors import records_of
from tests.fixtures.journals import state
from tests.fixtures.vectors import text
from tests.wire.answers import read

LENGTHS = (12, 40, 120)


@pytest.mark.parametrize("seed", range(24))
async def test_arrival_does_not_matter(admin: httpx.AsyncClient, scope: str, seed: int) -> None:
    """Each device's ops in their order, pushed a few at a time between those of the others, and all of it twice."""
    dice = Random(seed)
    ops = written(long_history(LENGTHS[seed % 3], seed), honest=seed % 2 == 0)
    for _ in range(2):
        waiting = {name: [op for op in ops if op.device_id == name] for name in DEVICES}
        while left := [name for name in DEVICES if waiting[name]]:
            name, some = dice.choice(left), 1 + dice.randrange(12)
            read(await Device(admin, scope, name).offer(waiting[name][:some]))
            del waiting[name][:some]
            if dice.random() < 0.3:
                await state(admin, scope)
    expected = fold_journal(records_of(ops)).to_json()
    found = await state(admin, scope)
    assert text({name: found[name] for name in expected}) == text(expected)
