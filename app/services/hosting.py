"""Writes for clients that keep no op log: the server continues a chain of theirs (server.md §7, §11)."""

import hmac
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

import orjson
from sqlalchemy.ext.asyncio import AsyncEngine

from app.problems import Problem
from app.services.access import Caller, Right, reach_or_create, require, unbound
from app.services.executors.answering import open_intents
from app.services.keys.vault import Vault, unlocking
from app.services.projections.streams import Where
from app.services.pushing.arrivals import Arrival, off_loop
from app.services.pushing.turns import Line, Turn
from app.settings import Settings
from app.sql import access, hosting, intents, pushing
from app.sql.access import Asked, Grant, Locked
from app.sql.hosting import Answered
from app.sql.keys import stream_key
from app.sql.ops import Appending
from app.sql.pushing import Place
from app.sql.transactions import Driver, exclusive, writing
from app.sql.writes import Writes
from foldpoint.admission import Bounds
from foldpoint.hlc import CounterExhausted, Hlc
from foldpoint.hosted import Draft, Outcome, hosted_device, mint, turn_draft
from foldpoint.op import Op
from foldpoint.relay import Chain
from foldpoint.seal import Keyring, SealError, seal_payload
from foldpoint.seal.box import NONCE_BYTES
from foldpoint.slug import slug


class Hold(NamedTuple):
    """A transaction that holds the scope's lock, and the database clock."""

    pg: Driver
    where: Where
    now_ms: int


#: What a write says it would do once the lock is held, or the answer it ends in without an op.
Plan = Callable[[Hold], Awaitable["list[Draft] | dict[str, Any]"]]
#: The answer of the ops that a plan led to, which are stored and folded by then.
Told = Callable[[Hold, Sequence[Op]], Awaitable[Any]]


#: The answer of an intent that a commit leaves nothing to record of.
ALREADY_COMMITTED = {"recorded": False, "reason": "already_committed"}


class Once(NamedTuple):
    """An idempotency key and the request it came with, as hashes.

    The request's is keyed with the idempotency key, which is not kept: without it nobody can try what was sent.
    """

    key: bytes
    request: bytes

    @classmethod
    def of(cls, key: str, request: bytes) -> "Once":
        return cls(sha256(key.encode()).digest(), hmac.digest(key.encode(), request, "sha256"))


class _Scope(NamedTuple):
    number: int
    slug: str


@dataclass(frozen=True, slots=True)
class Write:
    """One call; its fields came in so many bytes."""

    writer: str
    size: int
    plan: Plan
    told: Told
    once: Once | None = None


@dataclass(slots=True)
class Hosting:
    """Hosted writes of one server process. One call is one transaction."""

    engine: AsyncEngine
    settings: Settings
    vault: Vault

    async def write(self, caller: Caller, scope: str, write: Write) -> bytes:
        """Carry out a write; the answer as JSON. Raises Problem."""
        asked = Asked(caller.token_hash, slug(scope))
        while True:
            async with exclusive(self.engine) as pg:
                locked = (await access.lock(pg, [asked])).get(asked)
                if locked is not None and not unbound(locked.grant, scope):
                    number = require(caller, locked.grant, scope, Right.WRITE).existing
                    return await self._write(pg, _Scope(number, slug(scope)), locked, write)
            async with writing(self.engine) as connection:
                await reach_or_create(connection, caller, scope, Right.WRITE)

    async def _write(self, pg: Driver, scope: _Scope, locked: Locked, write: Write) -> bytes:
        if write.once is not None and (answer := await _answered(pg, scope.number, write.once, locked.now_ms)):
            return answer
        keyring = await self._keyring(pg, scope.number, locked.grant)
        where = Where(locked.grant.epoch, scope.number, keyring is not None, keyring)
        hold = Hold(pg, where, locked.now_ms)
        planned = await write.plan(hold)
        if isinstance(planned, list):
            planned = await write.told(hold, await self._append(pg, scope, locked, write, planned, keyring))
        answer = await off_loop(write.size, orjson.dumps, planned)
        if write.once is not None:
            kept = Answered(write.once.request, answer)
            await hosting.keep(pg, scope.number, write.once.key, kept, locked.now_ms)
        return answer

    async def _keyring(self, pg: Driver, scope: int, grant: Grant) -> Keyring | None:
        """What a write is sealed with; None in a plain scope. Raises sealed_scope."""
        if grant.mode != "sealed":
            return None
        if grant.key_state is None:
            raise Problem("sealed_scope", "the server holds no keys of this scope, and nothing is written in the clear")
        if grant.key_state == "unlocking":
            raise unlocking()
        return await self.vault.keyring(pg, scope, grant.key_generation)

    async def _append(
        self,
        pg: Driver,
        scope: _Scope,
        locked: Locked,
        write: Write,
        drafts: Sequence[Draft],
        keyring: Keyring | None,
    ) -> list[Op]:
        device_id = hosted_device(write.writer, locked.grant.epoch)
        place = Place(scope.number, device_id)
        device = (await pushing.load(pg, [place]))[place]
        chain = device.chain if device.chain.head is not None else Chain(device_id)
        witnessed = await hosting.witnessed(pg, scope.number)
        try:
            arrivals = await off_loop(write.size, _minted, chain, drafts, keyring, witnessed, locked.now_ms)
        except CounterExhausted as error:
            raise Problem("clock_skew", f"no stamp is left: {error}", {"server_ms": locked.now_ms}) from error
        self._refuse_large(arrivals)
        ops = [arrival.op for arrival in arrivals]
        bounds = Bounds("plain" if keyring is None else "sealed", locked.now_ms, max_wall_ms=None)
        for op in ops:
            if (refusal := bounds.refuse(op)) is not None:
                raise Problem(refusal.code, refusal.detail, refusal.facts)
        writes, line = Writes(), Line(device, chain)
        async with Appending(pg, writes) as appending:
            await appending.start([arrival.row(scope.number, line.no) for arrival in arrivals])
        for arrival in arrivals:
            line.accept(arrival.op)
        await Turn(scope.number, scope.slug, bounds, [], keyring, {device_id: line}).write(pg, writes)
        await writes.send(pg)
        return ops

    def _refuse_large(self, arrivals: Sequence[Arrival]) -> None:
        limits = self.settings.limits()
        if len(arrivals) > limits["max_ops_per_request"]:
            raise Problem("too_many_ops", f"{len(arrivals)} ops in one call", limits)
        for arrival in arrivals:
            if len(arrival.body) > limits["max_op_bytes"]:
                raise Problem("too_large", f"op {arrival.op.seq} is larger than {limits['max_op_bytes']} bytes", limits)


def _minted(
    chain: Chain, drafts: Sequence[Draft], keyring: Keyring | None, witnessed: Sequence[Hlc], now_ms: int
) -> list[Arrival]:
    """The next ops of a chain, as they are stored. Raises sealed_scope, CounterExhausted."""
    written = drafts if keyring is None else [_sealed(draft, keyring) for draft in drafts]
    return [Arrival.of(op, place) for place, op in enumerate(mint(chain, written, witnessed, now_ms))]


def _sealed(draft: Draft, keyring: Keyring) -> Draft:
    """The draft as devices can open it. Raises sealed_scope if no key of its audience is held."""
    try:
        key = keyring.newest_key(draft.scope)
    except SealError as error:
        raise Problem("sealed_scope", f"nothing is written in the clear: {error.detail}") from None
    return draft._replace(payload=seal_payload(draft.payload, key, secrets.token_bytes(NONCE_BYTES)).to_json())


async def _answered(pg: Driver, scope: int, once: Once, now_ms: int) -> bytes | None:
    """What the same request was answered before. Raises invalid_request for another one with its key."""
    before = await hosting.answered(pg, scope, once.key, now_ms)
    if before is not None and before.request != once.request:
        raise Problem("invalid_request", "this Idempotency-Key came with another request", {"path": "idempotency-key"})
    return None if before is None else before.answer


def drafts(ready: list[Draft]) -> Plan:
    """A plan that writes these, whatever the scope holds."""

    async def plan(_hold: Hold) -> list[Draft]:
        return ready

    return plan


def turn(fields: dict[str, Any]) -> Plan:
    """A plan that writes a turn. Raises Unreadable at once for what no transcript could show."""
    turn_draft(fields, 0)

    async def plan(hold: Hold) -> list[Draft]:
        return [turn_draft(fields, hold.now_ms)]

    return plan


def outcome(writer: str, recorded: Outcome, *, if_current: bool) -> Plan:
    """A plan that records what became of a run: not over a commit, and if asked only as the lease's holder.

    Raises stale_epoch (car-sync.md §8.7, §13.3); and if asked sealed_scope, as 503, while the run may have committed in
    an intent that is closed (server.md §6).
    """

    async def plan(hold: Hold) -> list[Draft] | dict[str, Any]:
        run = recorded.agent_id, recorded.run_id
        pg, scope = hold.pg, hold.where.scope
        (committed,) = await intents.of_runs(pg, scope, intents.COMMITTED, [run])
        if committed is not None and recorded.status != "committed":
            return ALREADY_COMMITTED
        if if_current:
            if committed is None:
                open_intents(await hosting.closed_intents(pg, scope))
            held = await hosting.lease_holder(pg, scope, stream_key(slug(recorded.agent_id)))
            if held != (recorded.epoch, writer):
                facts = {
                    "claimed_epoch": recorded.epoch,
                    "current_epoch": held and held.epoch,
                    "current_holder": held and held.holder,
                }
                raise Problem("stale_epoch", "the writer does not hold the agent's lease at this epoch", facts)
        return [recorded.draft()]

    return plan
