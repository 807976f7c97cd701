"""One hold of a scope's lock: which ops of these batches join their chains, and what they change."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import orjson

from app.problems import Problem
from app.services.access import Caller, Reach
from app.services.keys.opening import Opened
from app.services.pushing.arrivals import Arrival, Reading, off_loop
from app.services.pushing.folding import fold_into_records
from app.sql import access, ops, pushing, scope_keys
from app.sql.access import Settled
from app.sql.keys import op_id_text, slot_key
from app.sql.ops import Appending
from app.sql.pushing import Changed, Device, Place
from app.sql.transactions import Driver
from app.sql.writes import Writes
from foldpoint.admission import Bounds, mode_of
from foldpoint.envelope import is_well_formed
from foldpoint.op import Op
from foldpoint.relay import Chain, Duplicate, Refusal, continues, judge
from foldpoint.seal import Keyring
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


#: What became of each of some batches.
Answers = list[Admitted | Problem]


@dataclass(slots=True)
class Line:
    """A device in this turn: its chain as it was, the ids held at seqs that ops may meet, its new ops."""

    device: Device
    before: Chain
    held: dict[int, str] = field(default_factory=dict)
    new: list[Op] = field(default_factory=list)
    contact: bool = False
    refusal: Refusal | None = None

    @property
    def no(self) -> int:
        return self.device.no

    @property
    def chain(self) -> Chain:
        """The chain as it becomes."""
        return self.before.extended(self.new[-1]) if self.new else self.before

    def bind(self, arrivals: Sequence[Arrival], slug_: str, reach: Reach) -> None:
        """Take the raw id of the first op, if it has the slug; it is stored with the first op that is accepted."""
        if self.device.chain.device_id is None and not self.new and arrivals:
            claimed = reach.bound or arrivals[0].op.device_id
            self.before = Chain(claimed if slug(claimed) == slug_ else slug_)

    def judge(self, arrival: Arrival, bounds: Bounds) -> Refusal | Duplicate | None:
        if self.new and continues(self.new[-1], arrival.op, arrival.computed_id):
            return bounds.refuse(arrival.op)
        verdict = judge(self.chain, arrival.op, arrival.computed_id, self.held)
        return verdict if verdict is not None else bounds.refuse(arrival.op)

    def accept(self, op: Op) -> None:
        self.held[op.seq] = op.op_id
        self.new.append(op)

    def new_scopes(self) -> dict[str, int]:
        """The scope tags that are new to this device, with the seq of their first op."""
        first = {op.scope: op.seq for op in reversed(self.new)}
        return {tag: seq for tag, seq in first.items() if slot_key(tag) not in self.device.scope_keys}

    def problem(self) -> str | None:
        """Why it was refused, for an admin to see."""
        if self.refusal is None:
            return None
        problem = {"code": self.refusal.code, "detail": self.refusal.detail, **self.refusal.facts}
        return orjson.dumps(problem).decode()


@dataclass(slots=True)
class Turn:
    """Batches of one scope, each with its caller's reach, or the problem of a caller that has none.

    `keyring` is that of an unlocked scope: its ops are opened and folded.
    """

    scope: int
    slug: str
    bounds: Bounds
    batches: Sequence[tuple[Batch, Reach | Problem]]
    keyring: Keyring | None = None
    lines: dict[str, Line] = field(default_factory=dict)

    @property
    def contact(self) -> bool:
        """Whether a device of this turn was in contact."""
        return any(line.contact for line in self.lines.values())

    def places(self) -> Iterable[Place]:
        """The devices that are needed."""
        for batch, reach in self.batches:
            if isinstance(reach, Reach):
                yield Place(self.scope, batch.device)

    async def take(self, pg: Driver, devices: Mapping[Place, Device], appending: Appending) -> Answers:
        """Judge every batch op by op; the first refusal ends it, and what was accepted before stays."""
        answers: Answers = []
        for batch, reach in self.batches:
            if isinstance(reach, Problem):
                answers.append(reach)
                continue
            device = devices[Place(self.scope, batch.device)]
            try:
                reach.may_write(device.chain)
            except Problem as problem:
                answers.append(problem)
                continue
            line = self.lines.setdefault(batch.device, Line(device, device.chain))
            line.contact |= batch.on_wire
            answers.append(await self._take(pg, batch, line, reach, appending))
        return answers

    async def _take(self, pg: Driver, batch: Batch, line: Line, reach: Reach, appending: Appending) -> Admitted:
        admitted = Admitted()
        async for arrivals in batch.reading.parts():
            if any(arrival.op.seq < line.device.chain.next_seq for arrival in arrivals):
                await appending.finish()
                await self._hold(pg, line, arrivals)
            line.bind(arrivals, batch.device, reach)
            accepted = self._judge(line, arrivals, admitted)
            await appending.start([arrival.row(self.scope, line.no) for arrival in accepted])
            if admitted.refusal is not None:
                break
        else:
            admitted.end(batch.reading.refusal)
        line.refusal = admitted.refusal or line.refusal
        return admitted

    def _judge(self, line: Line, arrivals: Sequence[Arrival], admitted: Admitted) -> list[Arrival]:
        accepted = []
        for arrival in arrivals:
            verdict = line.judge(arrival, self.bounds)
            if verdict is None:
                line.accept(arrival.op)
                accepted.append(arrival)
                if self.bounds.mode is None:
                    self.bounds = replace(self.bounds, mode=mode_of(arrival.op))
            elif isinstance(verdict, Duplicate):
                admitted.duplicates.append(arrival.place)
            else:
                admitted.rejected, admitted.refusal = arrival.place, verdict
                break
        admitted.stored += [arrival.place for arrival in accepted]
        return accepted

    async def _hold(self, pg: Driver, line: Line, arrivals: Sequence[Arrival]) -> None:
        """Load the ids at seqs that the chain already has and the batch brings again."""
        seqs = [arrival.op.seq for arrival in arrivals if arrival.op.seq < line.device.chain.next_seq]
        ids = await ops.held_ids(pg, self.scope, line.no, seqs)
        line.held.update((seq, op_id_text(raw)) for seq, raw in ids.items())

    async def write(self, pg: Driver, writes: Writes) -> None:
        """Fold what was stored, move the heads, note the contacts."""
        new = [op for line in self.lines.values() for op in line.new]
        if new:
            numbers = {line.new[0].device_id: line.no for line in self.lines.values() if line.new}
            opened = None
            if self.bounds.mode == "plain":
                await fold_into_records(pg, writes, self.scope, new, numbers)
            elif self.keyring is not None:
                opened = await off_loop(sum(len(op.payload_text) for op in new), Opened.of, new, self.keyring)
                await opened.fold(pg, writes, self.scope, numbers)
                scope_keys.count(writes, self.scope, opened.opened, opened.settled)
            access.settle(writes, self._settled(new, opened))
        for slug_, line in self.lines.items():
            place, head = Place(self.scope, slug_), line.chain if line.new else None
            changed = Changed.of(place, line.device, head, line.problem(), contact=line.contact)
            pushing.put(writes, changed)
            pushing.name_scopes(writes, self.scope, line.no, line.new_scopes())

    def _settled(self, new: Sequence[Op], opened: Opened | None) -> Settled:
        sealed_ops = closed_intents = 0
        if opened is not None:
            sealed_ops, closed_intents = len(new) - opened.opened, opened.lacking
        elif self.bounds.mode == "sealed":
            intents = [op for op in new if op.surface == intent.SURFACE.name and is_well_formed(op.payload)]
            sealed_ops, closed_intents = len(new), len(intents)
        return Settled(
            self.scope,
            self.slug,
            ops=len(new),
            sealed_ops=sealed_ops,
            closed_intents=closed_intents,
            max_wall_ms=max(op.hlc.wall_ms for op in new),
            mode=self.bounds.mode,
        )
