"""Judging checkpoints leaves nothing behind in the process, however many scopes there are."""

import asyncio
import gc

from app.database import create_engine
from app.problems import Problem
from app.services.access import Caller
from app.services.checkpoints.judging import Judging
from app.services.slots import Slots


async def test_no_turn_is_kept_of_a_scope_that_waits_for_nothing(database_url: str) -> None:
    engine = create_engine(database_url, pool_size=3)
    judging = Judging(engine, Slots(1, each=1))
    puts = [judging.put(Caller(b"", root=True), scope, b"[]") for scope in range(1, 50) for _ in range(2)]
    ends = await asyncio.gather(*puts, return_exceptions=True)
    assert all(isinstance(end, Problem) for end in ends)
    del puts, ends
    gc.collect()  # an exception's traceback holds the frame, and with it the turn
    assert (len(judging.turns), len(judging.running)) == (0, 0)
    await engine.dispose()
