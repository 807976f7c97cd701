"""Unlocking a sealed scope: its ops are opened and folded from the first to the last; and locking it (server.md §9).

It goes on step by step under the scope's lock, and pushes go on between the steps. What arrives is stored above what is
opened, and reached in its turn; the step that reaches every head ends it, and from then on pushes fold what they
bring. A process that dies leaves the rest to whoever looks next.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from app.problems import Problem
from app.services.access import Caller, still_known
from app.services.keys.opening import Opened
from app.services.keys.trying_keys import MOST_BYTES, Given, fitting, too_many
from app.services.keys.unwrapping import unwrapped
from app.services.keys.vault import Vault
from app.services.pushing.folding import Numbers
from app.services.reading.reading_ops import advance
from app.services.slots import Slots
from app.sql import devices, hosting, ops, scope_keys, scopes
from app.sql.ops import Span
from app.sql.transactions import Driver, exclusive
from app.sql.writes import Writes
from foldpoint.op_text import read_op
from foldpoint.seal import Keyring, Reason, SealError
from foldpoint.seal.keys import audience_of

#: Ops opened in one transaction: more than a push stores in one, so that the end comes nearer whatever is pushed.
STEP = 2_000
#: Of large ops, a transaction opens about so much.
STEP_BYTES = 64 * 1024 * 1024

Watch = Callable[[int], object]


@dataclass(slots=True)
class Unlocking:
    """Unlocks scopes of one process, to the end even if the client hangs up. One process at a time works on a scope."""

    engine: AsyncEngine
    whole: Slots
    vault: Vault
    running: set[asyncio.Task[dict[str, Any]]] = field(default_factory=set)

    async def unlock(self, caller: Caller, scope: int, given: Given, watch: Watch = lambda _: None) -> dict[str, Any]:
        """Take keys of a scope and fold what they open; what the server can open now. Raises Problem.

        Keys that it has already stay, unless others are given for the same audience and epoch.
        """
        task = asyncio.create_task(self._unlock(caller, scope, given, watch))
        self.running.add(task)
        task.add_done_callback(self.running.discard)
        return await asyncio.shield(task)

    async def lock(self, caller: Caller, scope: int) -> dict[str, Any]:
        """Forget the keys of a scope, and remove what was folded under them. Raises plain_scope: it has no keys."""
        async with exclusive(self.engine) as pg:
            if await scopes.hold(pg, scope) == "plain":
                raise _no_keys()
            await scope_keys.remove(pg, scope)
            await scope_keys.forget_claims(pg, scope)
            await hosting.forget_opened(pg, scope)
            await still_known(pg, caller)
            self.vault.forget(scope)
            return await _told(pg, scope, Keyring())

    async def resume(self, scope: int) -> None:
        """Go on with what a process left, unless another is at it, or the keys are not under this one's key file."""
        async with exclusive(self.engine) as alone:
            if await scopes.may_work_alone(alone, scope):
                with suppress(Problem):
                    await self._run(scope)

    async def stop(self) -> None:
        """Cut short what is under way: it is gone on with after the next start."""
        for task in self.running:
            task.cancel()
        await asyncio.gather(*self.running, return_exceptions=True)

    async def _unlock(self, caller: Caller, scope: int, given: Given, watch: Watch) -> dict[str, Any]:
        keyring = await given.keyring()
        if given.granters and keyring.master is not None:
            wrapped = unwrapped(self.engine, scope, keyring.master, given.user, given.granters)
            keyring = keyring.joined(await wrapped)
        async with self.whole.take(scope):
            keyring = await fitting(self.engine, scope, keyring)
            await self._begin(caller, scope, keyring)
            async with exclusive(self.engine) as alone:
                await scopes.work_alone(alone, scope)
                await self._run(scope, watch)
            async with exclusive(self.engine) as pg:
                known = await scope_keys.held(pg, scope)
                return await _told(pg, scope, self.vault.read(scope, known.stored) if known.stored else Keyring())

    async def _begin(self, caller: Caller, scope: int, given: Keyring) -> None:
        """Store the keys; unless they are known already, what was folded without them goes."""
        async with exclusive(self.engine) as pg:
            await scopes.hold(pg, scope)
            known = await scope_keys.held(pg, scope)
            if known.mode == "plain":
                raise _no_keys()
            held = Keyring() if known.stored is None else self.vault.read(scope, known.stored)
            joined = held.joined(given)
            if len(joined.text()) > MOST_BYTES:
                raise too_many()
            if known.stored is None or joined.text() != held.text():
                await scope_keys.remove(pg, scope)
                await scope_keys.begin(pg, scope, self.vault.seal(scope, joined))
            await still_known(pg, caller)

    async def _run(self, scope: int, watch: Watch = lambda _: None) -> None:
        while (opened := await self._step(scope)) is not None:
            watch(opened)

    async def _step(self, scope: int) -> int | None:
        """Fold the next ops, and say how many; None once there is nothing to unlock."""
        async with exclusive(self.engine) as pg:
            await scopes.hold(pg, scope)
            known = await scope_keys.held(pg, scope)
            if known.state != "unlocking":
                return None
            keyring = await self.vault.keyring(pg, scope, known.generation)
            chains = await devices.chains(pg, scope)
            upto = await scope_keys.opened_upto(pg, scope)
            numbers = {chain.device_id: no for no, chain in chains.items() if chain.device_id is not None}
            spans = advance([Span(no, -1, chain.head.seq) for no, chain in chains.items() if chain.head], upto)
            done = size = 0
            while spans and done < STEP and size < STEP_BYTES:
                texts, reached = await ops.bodies(pg, scope, spans, STEP)
                await _fold(pg, scope, await asyncio.to_thread(_opened, texts, keyring), numbers, reached)
                spans = advance(spans, reached)
                done, size = done + len(texts), size + sum(map(len, texts))
            if not spans:
                await scope_keys.finish(pg, scope)
            return done


def _opened(texts: list[bytes], keyring: Keyring) -> Opened:
    return Opened.of(map(read_op, texts), keyring)


async def _fold(pg: Driver, scope: int, opened: Opened, numbers: Numbers, reached: dict[int, int]) -> None:
    writes = Writes()
    await opened.fold(pg, writes, scope, numbers)
    scope_keys.put_upto(writes, scope, reached)
    scope_keys.count(writes, scope, opened.opened, opened.settled)
    scope_keys.recount(writes, scope, opened.opened, opened.settled)
    await writes.send(pg)


def _no_keys() -> Problem:
    return Problem("plain_scope", "nothing of a plain scope is sealed, and it has no keys")


async def _told(pg: Driver, scope: int, keyring: Keyring) -> dict[str, Any]:
    """Which audiences the server can open, and how many ops it has opened."""
    known = await scope_keys.held(pg, scope)
    tags = await scope_keys.scope_tags(pg, scope)
    held = {audience_of(tag) for tag in tags if _has_key(keyring, tag)} | {*keyring.audiences, *keyring.either}
    if keyring.master is not None:
        held.add("personal")
    return {
        "unlocked": sorted(held),
        "opened_ops": known.ops - known.sealed_ops,
        "unopened_ops": known.sealed_ops,
    }


def _has_key(keyring: Keyring, tag: str) -> bool:
    try:
        keyring.newest_key(tag)
    except SealError as error:
        return error.reason is not Reason.NO_KEY
    return True
