"""Checkpoints that devices publish: stored only if our own fold gives the same bytes (server.md §3)."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from sqlalchemy.ext.asyncio import AsyncEngine

from app.problems import Problem
from app.services.access import Caller, still_known
from app.services.checkpoints.keeping_checkpoints import keep, make_latest, sweep
from app.services.reading.past import checkpoint_at
from app.services.slots import Slots
from app.sql import checkpoints, devices, ops, scopes
from app.sql.checkpoint_texts import Text
from app.sql.transactions import Driver, begun, exclusive, reading
from foldpoint.admission import I64_MAX
from foldpoint.canonical import Unreadable
from foldpoint.checkpoint import Checkpoint, CheckpointError, read_checkpoint_text
from foldpoint.frontier import Covered
from foldpoint.relay import unverified


@dataclass(slots=True)
class Judging:
    """Judges one checkpoint at a time per scope, and to the end even if the client hangs up."""

    engine: AsyncEngine
    whole: Slots
    turns: WeakValueDictionary[int, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    running: set[asyncio.Task[bool]] = field(default_factory=set)

    async def put(self, caller: Caller, scope: int, body: bytes) -> bool:
        """Whether the checkpoint was stored now; false if it is stored already. Raises Problem."""
        task = asyncio.create_task(self._put(caller, scope, body))
        self.running.add(task)
        task.add_done_callback(self.running.discard)
        return await asyncio.shield(task)

    async def stop(self) -> None:
        """Wait for what is being judged."""
        await asyncio.gather(*self.running, return_exceptions=True)

    async def _put(self, caller: Caller, scope: int, body: bytes) -> bool:
        async with self.turns.setdefault(scope, asyncio.Lock()), self.whole.take(scope):
            offered = await asyncio.to_thread(_read, body)
            async with exclusive(self.engine) as turn:
                await scopes.work_alone(turn, scope)
                if await self._again(caller, scope, offered):
                    return False
                return await self._store(caller, scope, offered, await self._judge(scope, offered))

    async def _again(self, caller: Caller, scope: int, offered: Checkpoint) -> bool:
        async with exclusive(self.engine) as pg:
            stored = await checkpoints.by_hash(pg, scope, offered.checkpoint_hash)
            if stored is not None and stored.kept:
                await make_latest(pg, scope, stored.id)
                await still_known(pg, caller)
        return stored is not None

    async def _judge(self, scope: int, offered: Checkpoint) -> int:
        """How often retention had trimmed the state that it is compared with.

        Raises checkpoint_invalid, _unverified or _state_mismatch, in the order of car-sync.md §11.6.
        """
        try:
            await asyncio.to_thread(offered.verify)
        except CheckpointError as error:
            facts = {"expected": error.expected, "actual": error.actual}
            raise Problem("checkpoint_invalid", str(error), facts) from error
        async with reading(self.engine) as connection:
            pg = await begun(connection)
            await _check_frontier(pg, scope, offered.frontier)
            try:
                own = await checkpoint_at(pg, scope, {d: entry.seq for d, entry in offered.frontier.items()})
            except Problem as problem:
                raise Problem(problem.code, problem.detail, problem.facts, status=409) from problem
        await self._compare(scope, offered, own.checkpoint)
        return own.trims

    async def _compare(self, scope: int, offered: Checkpoint, own: Checkpoint) -> None:
        if own.checkpoint_hash == offered.checkpoint_hash:
            return
        facts = {"checkpoint_hash": offered.checkpoint_hash, "state_hash": offered.state_hash}
        if own.frontier != offered.frontier or own.scopes != offered.scopes:
            raise Problem("checkpoint_unverified", "frontier or scopes are not those of the ops held here", facts)
        problem = Problem(
            "checkpoint_state_mismatch",
            "the state is not the fold of the ops held here",
            {**facts, "own_state_hash": own.state_hash},
        )
        async with exclusive(self.engine) as pg:
            await scopes.put_problem(pg, scope, problem.body())
        raise problem

    async def _store(self, caller: Caller, scope: int, offered: Checkpoint, trims: int) -> bool:
        pieces = await asyncio.to_thread(lambda: list(offered.pieces()))
        size = sum(len(piece) for piece in pieces)
        async with exclusive(self.engine) as pg:
            stored = await checkpoints.add(pg, scope, offered.checkpoint_hash, offered.state_hash, size, trims)
            if stored is None:
                return False
            text = Text(pg, scope, stored)
            for piece in pieces:
                await text.write(piece)
            await text.finish()
            numbers = {chain.device_id: no for no, chain in (await devices.chains(pg, scope)).items()}
            await checkpoints.add_frontier(
                pg, scope, stored, {numbers[d]: entry for d, entry in offered.frontier.items()}
            )
            await still_known(pg, caller)
            await keep(pg, scope, stored)
        await sweep(self.engine, scope)
        return True


def _read(body: bytes) -> Checkpoint:
    try:
        return read_checkpoint_text(body)
    except Unreadable as error:
        raise Problem("invalid_request", f"no checkpoint: {error}", {"path": error.path}) from error


async def _check_frontier(pg: Driver, scope: int, frontier: Mapping[str, Covered]) -> None:
    """Raises checkpoint_unverified for a frontier that the chains do not bear out (car-sync.md §11.6)."""
    chains = {chain.device_id: (no, chain) for no, chain in (await devices.chains(pg, scope)).items()}
    for device in sorted(frontier):
        if frontier[device].seq > I64_MAX:
            raise Problem("checkpoint_unverified", f"{device}: no op is held above 2^63-1", {"device_id": device})
        no, chain = chains.get(device, (0, None))
        held = await ops.covered_at(pg, scope, no, device, frontier[device].seq)
        detail = unverified(chain, frontier[device], {} if held is None else {held.seq: held.head})
        if detail is not None:
            facts = {"device_id": device, "seq": frontier[device].seq}
            raise Problem("checkpoint_unverified", f"{device} at seq {frontier[device].seq}: {detail}", facts)
