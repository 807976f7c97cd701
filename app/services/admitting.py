"""One transaction under a scope's lock: which ops of these batches join their chains, and what they change."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
from sqlalchemy.ext.asyncio import AsyncEngine

from app.problems import Problem
from app.services.access import Caller, Reach, Right, reach_or_create, require, unbound
from app.services.arrivals import Arrival, Reading
from app.services.folding import fold_into_records
from app.services.roster import refuse_hosted
from app.settings import Settings
from app.sql import access, devices, ops
from app.sql.access import Locked
from app.sql.devices import Device
from app.sql.keys import op_id_text, slot_key
from app.sql.ops import Appending
from app.sql.transactions import Driver, exclusive, writing
from foldpoint.admission import Bounds, mode_of
from foldpoint.envelope import is_well_formed
from foldpoint.op import Op
from foldpoint.relay import Chain, Duplicate, Refusal, judge
from foldpoint.slug import slug
from foldpoint.surfaces import intent


@dataclass(frozen=True, slots=True)
class Batch:
    """Ops of one device in seq order, still to be read."""

    caller: Caller
    device: str
    reading: Reading
    on_wire: bool

    def __len__(self) -> int:
        return max(len(self.reading), 1)


@dataclass(slots=True)
class Admitted:
    """What became of a batch: places of ops in the request, and why it stopped."""

    stored: list[int] = field(default_factory=list)
    duplicates: list[int] = field(default_factory=list)
    rejected: int | None = None
    refusal: Refusal | None = None

    def end(self, unreadable: Refusal | None) -> None:
        """Note that reading ended, early if an op could not be read."""
        if unreadable is not None:
            self.refusal, self.rejected = unreadable, int(str(unreadable.facts["index"]))


async def admit(
    engine: AsyncEngine, settings: Settings, scope: str, batches: Sequence[Batch]
) -> list[Admitted | Problem]:
    """Admit batches of one scope together, each by its own caller's right; committed when this returns."""
    while True:
        async with exclusive(engine) as pg:
            if (answers := await _admit(pg, settings, scope, batches)) is not None:
                return answers
        if (problems := await _create(engine, scope, batches)) is not None:
            return problems


async def _admit(
    pg: Driver, settings: Settings, scope: str, batches: Sequence[Batch]
) -> list[Admitted | Problem] | None:
    """None if there is no such scope, or it is not bound yet to the raw name it is given."""
    answers: list[Admitted | Problem] = []
    turn: _Turn | None = None
    for batch in batches:
        locked = await access.lock(pg, batch.caller.token_hash, slug(scope))
        if locked is None or unbound(locked.grant, scope):
            return None
        turn = turn or _Turn.begin(pg, locked, settings)
        try:
            reach = require(batch.caller, locked.grant, scope, Right.SYNC)
            reach.may_name(batch.device)
            refuse_hosted(batch.device)
            line = await turn.line(batch)
            reach.may_write(line.device.chain)
        except Problem as problem:
            answers.append(problem)
        else:
            answers.append(await turn.take(batch, line, reach))
    if turn is not None:
        await turn.write(settings.eviction_horizon_ms)
    return answers


async def _create(engine: AsyncEngine, scope: str, batches: Sequence[Batch]) -> list[Admitted | Problem] | None:
    """Make the scope for the first admin among the callers; without one, everybody's Problem."""
    problems: list[Admitted | Problem] = []
    for batch in batches:
        async with writing(engine) as connection:
            try:
                await reach_or_create(connection, batch.caller, scope, Right.SYNC)
                return None
            except Problem as problem:
                problems.append(problem)
    return problems


@dataclass(slots=True)
class _Line:
    """A device in this turn: its chain as it becomes, the ids held at seqs that ops may meet, its new ops."""

    device: Device
    chain: Chain
    held: dict[int, str] = field(default_factory=dict)
    new: list[Op] = field(default_factory=list)
    contact: bool = False
    refusal: Refusal | None = None

    @property
    def no(self) -> int:
        return self.device.no

    def bind(self, arrivals: Sequence[Arrival], slug_: str, reach: Reach) -> None:
        """Take the raw id of the first op, if it has the slug; it is stored with the first op that is accepted."""
        if self.device.chain.device_id is None and self.chain.head is None and arrivals:
            claimed = reach.bound or arrivals[0].op.device_id
            self.chain = Chain(claimed if slug(claimed) == slug_ else slug_)

    def judge(self, arrival: Arrival, bounds: Bounds) -> Refusal | Duplicate | None:
        verdict = judge(self.chain, arrival.op, arrival.computed_id, self.held)
        return verdict if verdict is not None else bounds.refuse(arrival.op)

    def accept(self, arrival: Arrival) -> None:
        self.chain = self.chain.extended(arrival.op)
        self.held[arrival.op.seq] = arrival.op.op_id
        self.new.append(arrival.op)


@dataclass(slots=True)
class _Turn:
    """One hold of a scope's lock."""

    pg: Driver
    scope: int
    bounds: Bounds
    lines: dict[str, _Line] = field(default_factory=dict)

    @classmethod
    def begin(cls, pg: Driver, locked: Locked, settings: Settings) -> "_Turn":
        assert locked.grant.scope is not None
        mode: Any = locked.grant.mode
        bounds = Bounds.of(mode, locked.now_ms, settings.max_clock_skew_ms, locked.max_wall_ms)
        return cls(pg, locked.grant.scope, bounds)

    async def take(self, batch: Batch, line: _Line, reach: Reach) -> Admitted:
        """Judge a batch op by op; the first refusal ends it, and what was accepted before stays."""
        admitted = Admitted()
        line.contact |= batch.on_wire
        async with Appending(self.pg, self.scope) as appending:
            async for arrivals in batch.reading.parts():
                if any(arrival.op.seq < line.device.chain.next_seq for arrival in arrivals):
                    await appending.finish()
                    await self._hold(line, arrivals)
                line.bind(arrivals, batch.device, reach)
                accepted = self._judge(line, arrivals, admitted)
                await appending.start([arrival.row(line.no) for arrival in accepted])
                if admitted.refusal is not None:
                    break
            else:
                admitted.end(batch.reading.refusal)
        line.refusal = admitted.refusal or line.refusal
        return admitted

    def _judge(self, line: _Line, arrivals: Sequence[Arrival], admitted: Admitted) -> list[Arrival]:
        accepted = []
        for arrival in arrivals:
            verdict = line.judge(arrival, self.bounds)
            if isinstance(verdict, Refusal):
                admitted.rejected, admitted.refusal = arrival.place, verdict
                break
            if isinstance(verdict, Duplicate):
                admitted.duplicates.append(arrival.place)
                continue
            line.accept(arrival)
            accepted.append(arrival)
            admitted.stored.append(arrival.place)
            if self.bounds.mode is None:
                self.bounds = replace(self.bounds, mode=mode_of(arrival.op))
        return accepted

    async def line(self, batch: Batch) -> _Line:
        """The device of a batch, as this turn has it."""
        line = self.lines.get(batch.device)
        if line is None:
            device = await devices.load(self.pg, self.scope, batch.device)
            line = self.lines[batch.device] = _Line(device, device.chain)
        return line

    async def _hold(self, line: _Line, arrivals: Sequence[Arrival]) -> None:
        """Load the ids at seqs that the chain already has and the batch brings again."""
        seqs = [arrival.op.seq for arrival in arrivals if arrival.op.seq < line.device.chain.next_seq]
        ids = await ops.held_ids(self.pg, self.scope, line.no, seqs)
        line.held.update((seq, op_id_text(raw)) for seq, raw in ids.items())

    async def write(self, horizon_ms: int) -> None:
        """Fold what was stored, move the heads, note the contacts."""
        new = [op for line in self.lines.values() for op in line.new]
        if new:
            if self.bounds.mode == "plain":
                numbers = {line.new[0].device_id: line.no for line in self.lines.values() if line.new}
                await fold_into_records(self.pg, self.scope, new, numbers)
            await self._settle(new)
        for slug_, line in self.lines.items():
            await self._write_line(slug_, line, horizon_ms)

    async def _settle(self, new: Sequence[Op]) -> None:
        sealed = self.bounds.mode == "sealed"
        intents = [op for op in new if op.surface == intent.SURFACE.name and is_well_formed(op.payload)]
        await access.settle(
            self.pg,
            self.scope,
            ops=len(new),
            sealed=len(new) if sealed else 0,
            closed_intents=len(intents) if sealed else 0,
            max_wall_ms=max(op.hlc.wall_ms for op in new),
            mode=self.bounds.mode,
        )

    async def _write_line(self, slug_: str, line: _Line, horizon_ms: int) -> None:
        if line.new:
            await devices.advance(self.pg, self.scope, line.no, line.chain)
            await devices.name_scopes(self.pg, self.scope, line.no, _first_seqs(line))
        if line.refusal is not None:
            await devices.put_problem(self.pg, self.scope, line.no, _problem_text(line.refusal))
        if line.contact:
            await devices.touch(self.pg, self.scope, slug_, horizon_ms)


def _first_seqs(line: _Line) -> dict[str, int]:
    """The scope tags that are new to this device, with the seq of their first op."""
    first: dict[str, int] = {}
    for op in line.new:
        first.setdefault(op.scope, op.seq)
    return {tag: seq for tag, seq in first.items() if slot_key(tag) not in line.device.scope_keys}


def _problem_text(refusal: Refusal) -> str:
    problem = {"code": refusal.code, "detail": refusal.detail, **refusal.facts}
    return orjson.dumps(problem).decode()
