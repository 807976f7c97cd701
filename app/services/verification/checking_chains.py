"""The chain part of `verify`: each stored op recomputed, and linked to the one before it."""

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field

from app.services.keys.opening import Opened
from app.services.pushing.arrivals import stream_of
from app.services.verification.checking_entries import Entries
from app.sql import audit, devices
from app.sql.keys import op_id_text, slot_key
from app.sql.transactions import Driver, Row
from foldpoint.canonical import Unreadable
from foldpoint.chain import ChainError, check_content, check_link
from foldpoint.envelope import is_envelope, is_well_formed
from foldpoint.op import Op
from foldpoint.op_text import read_op_text
from foldpoint.relay import Chain
from foldpoint.run_seen import sightings
from foldpoint.seal import Keyring
from foldpoint.state import Record
from foldpoint.surfaces import intent, surface_of

#: A slot of run_seen as its table keys it: agent, slot key of the run, epoch, failed.
SeenKey = tuple[str, bytes, int, bool]


@dataclass(slots=True)
class Chains:
    """What the chains of a scope amount to, gathered while they are checked."""

    #: The first seq of each device and scope tag, as stored.
    first_seqs: dict[tuple[int, str], int]
    ops: int = 0
    sealed: int = 0
    closed_intents: int = 0
    settled_intents: int = 0
    max_wall_ms: int = 0
    seen: dict[SeenKey, Record] = field(default_factory=dict)
    entries: Entries = field(default_factory=Entries)
    #: What sealed ops are opened with.
    keyring: Keyring | None = None
    #: Called after each op, for a progress bar.
    watch: Callable[[], object] = lambda: None

    def add(self, op: Op) -> None:
        self.ops += 1
        self.max_wall_ms = max(self.max_wall_ms, op.hlc.wall_ms)
        if not is_envelope(op.payload):
            self._see(op)
        elif self.keyring is None:
            self.sealed += 1
            self.closed_intents += op.surface == intent.SURFACE.name and is_well_formed(op.payload)
        else:
            opened = Opened.of([op], self.keyring)
            self.sealed += 1 - opened.opened
            self.closed_intents += opened.lacking
            self.settled_intents += opened.settled
            for folded in opened.ops:
                self._see(folded)

    def _see(self, op: Op) -> None:
        self.entries.add(op)
        if op.surface == intent.SURFACE.name:
            for slot, record in sightings([op]).items():
                key = slot.agent_id, slot_key(slot.key), slot.epoch, slot.failed
                self.seen[key] = max(record, self.seen.get(key, record))


async def check_chains(pg: Driver, scope: int, chains: Chains) -> AsyncIterator[str]:
    """One sentence per fault in the op rows, the entries that they bring, the heads and the floors."""
    held = await devices.chains(pg, scope)
    floors = {row["no"]: row for row in await audit.floors(pg, scope)}
    before: dict[int, Op] = {}
    async for row in audit.ops(pg, scope):
        no, name = row["device"], f"device {_name(held, row)} seq {row['seq']}"
        try:
            read = read_op_text(row["body"])
            op = read.op
            check_content(op)
        except (Unreadable, ChainError) as error:
            yield f"{name}: {error}"
            continue
        if read.text != row["body"] or not _columns_agree(row, op, read.payload_at) or no not in held:
            yield f"{name}: the row does not say what the op says"
            continue
        for fault in _link_faults(before.get(no), op, floors[no]):
            yield f"{name}: {fault}"
        if chains.first_seqs.get((no, op.scope), op.seq + 1) > op.seq:
            yield f"{name}: scope tag {op.scope!r} is not noted"
        chains.add(op)
        chains.watch()
        before[no] = op
        if chains.entries.are_many:
            async for fault in chains.entries.check(pg, scope):
                yield fault
    async for fault in chains.entries.check(pg, scope):
        yield fault
    for fault in _head_faults(held, before):
        yield fault


def _head_faults(held: dict[int, Chain], lasts: dict[int, Op]) -> Iterator[str]:
    for no, chain in held.items():
        assert chain.head is not None
        last = lasts[no].seq if no in lasts else chain.dropped_below - 1
        if chain.head.seq != last or (no in lasts and chain.head.head != lasts[no].op_id):
            yield f"device {chain.device_id}: the head is at seq {chain.head.seq}, the ops end at {last}"


def _name(held: dict[int, Chain], row: Row) -> str:
    return held[row["device"]].device_id or "" if row["device"] in held else f"number {row['device']}"


def _columns_agree(row: Row, op: Op, payload_at: int) -> bool:
    surface = surface_of(op.surface)
    columns = (row["seq"], row["wall_ms"], row["counter"], op_id_text(row["op_id"]), row["surface"], row["payload_at"])
    expected = (op.seq, op.hlc.wall_ms, op.hlc.counter, op.op_id, surface.number, payload_at)
    return columns == expected and row["stream"] == stream_of(op)


def _link_faults(before: Op | None, op: Op, floor: Row) -> list[str]:
    if op.device_id != floor["id"].decode():
        return ["the op is of another device"]
    if before is None:
        prev = op_id_text(floor["dropped_op_id"]) if floor["dropped_op_id"] else None
        linked = op.seq == floor["dropped_below"] and op.prev == prev
        return [] if linked else ["the chain does not begin at its floor"]
    try:
        check_link(before, op)
    except ChainError as error:
        return [str(error)]
    return []
