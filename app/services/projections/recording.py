"""What hosted writers record of runs: events, fenced by the agent's lease, and seals (run-ledger.md §12)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from app.problems import Problem
from app.services.hosting import Hold, Plan
from app.services.projections.run_ledgers import FOLD
from app.services.projections.streams import Read, Where
from app.services.projections.whole_ledgers import WholeLedger
from app.services.projections.writes import Payload, StreamWrite, by_id, drafts_of, not_held
from app.services.pushing.arrivals import off_loop
from app.sql import leases
from app.sql.entries import StreamKey
from app.sql.transactions import Driver
from foldpoint.hosted import Draft
from foldpoint.op import Op
from foldpoint.projection import BelowSnapshot
from foldpoint.projections import RUN_LEDGER
from foldpoint.run_ledger.answers import append_answer, told
from foldpoint.run_ledger.calls import Append, SealCall
from foldpoint.run_ledger.entry import entry_payload
from foldpoint.run_ledger.errors import SealMismatch
from foldpoint.run_ledger.executor import (
    NotFolded,
    check_append,
    check_seal,
    foreseen,
    lowest_needed,
    plan_seal,
    seal_payloads,
    seen_at,
    starting_agent,
)
from foldpoint.run_ledger.merge import Merged
from foldpoint.run_ledger.walk import Standing
from foldpoint.slug import slug


@dataclass(slots=True)
class _Recording(StreamWrite[Merged]):
    """One call."""

    fold = FOLD
    #: The winners that a seal is to fix, by seq, as its writer saw them; None if nothing is to be sealed.
    _seen: dict[int, str] | None = field(init=False, default=None)
    #: Those that end where the fold ahead settled.
    _before: list[str] = field(init=False, default_factory=list)

    async def fold_ahead(self, pg: Driver, where: Where) -> Read[Merged]:
        """Also what a seal has to know of the seqs that are settled: as long as they are, their winners are too."""
        read = await StreamWrite.fold_ahead(self, pg, where)
        if self._seen is not None and self.ahead is not None and self.stream is not None:
            start = self.ahead.snapshot.base.next_seq
            if (lowest := lowest_needed(read.now, self._seen)) < start:
                self._before = await (await WholeLedger.of(pg, where, self.stream)).winners(lowest, start)
        return read

    async def _unsealed(self, hold: Hold, merged: Merged, through: int, seen: Mapping[int, str]) -> tuple[str, ...]:
        """The winners that a seal is to fix. Raises gap, seal_mismatch."""
        before: list[str] = []
        start = merged.onto.base.next_seq
        if through < merged.state.next_seq and (lowest := lowest_needed(merged, seen)) < start:
            before = await self._winners(hold, merged, lowest, start)
        try:
            return plan_seal(merged, through, seen, before)
        except NotFolded as error:
            facts = {"expected": merged.state.next_seq, "found": through, **_known(merged)}
            raise Problem("gap", f"{error}, and only what is folded can be sealed", facts) from error
        except SealMismatch as error:
            raise Problem("seal_mismatch", str(error), {**error.fields, **_known(merged)}) from error

    async def _winners(self, hold: Hold, merged: Merged, lowest: int, start: int) -> list[str]:
        goes_on = self.ahead is not None and merged.onto.base is self.ahead.snapshot.base
        if goes_on and start - len(self._before) <= lowest:
            return self._before
        assert self.stream is not None
        return await (await WholeLedger.of(hold.pg, hold.where, self.stream)).winners(lowest, start)


@dataclass(slots=True)
class Appending(_Recording):
    """An append of so many bytes. What its writer recorded before is not written again, and is told its status."""

    size: int
    _call: Append = field(init=False)
    #: What it records, by id, and the ids in their order.
    _given: dict[str, Payload] = field(init=False)
    _ids: list[str] = field(init=False)
    #: The run with what is written now.
    _after: Merged = field(init=False)
    _sealed: int | None = field(init=False, default=None)

    def of(self, call: Append) -> Plan:
        """Raises stale_epoch, and seal_mismatch if a record that is to be sealed does not win."""
        self._call = call
        payloads = [entry_payload(call.writer, record) for record in call.records]
        self._given = by_id(payloads)
        self._ids = [str(payload["id"]) for payload in payloads]
        self.stream = call.run_id
        if call.seal:
            self._seen = {record.seq: name for record, name in zip(call.records, self._ids, strict=True)}
        return self._plan

    async def _plan(self, hold: Hold) -> list[Draft] | dict[str, Any]:
        call = self._call
        merged = await self.now(hold)
        if call.epoch is not None:
            agent = merged.state.agent_id or starting_agent(call.records)
            await fence(hold, agent, call.writer, call.epoch, "seal" if call.seal else "append")
        new = await not_held(hold, StreamKey.named(RUN_LEDGER, call.run_id), self._given)
        self._after = await off_loop(self.size, foreseen, merged, call.run_id, call.writer, new)
        seals = [] if call.epoch is None or self._seen is None else await self._seals(hold, call.epoch, self._seen)
        return drafts_of(RUN_LEDGER, (*new, *seals)) or await self._answer(hold)

    async def _seals(self, hold: Hold, epoch: int, seen: Mapping[int, str]) -> list[Payload]:
        call, after = self._call, self._after
        standings = {standing.item.place.id: standing for standing in after.standings}
        for name in self._ids:
            if (standing := standings.get(name)) is not None and standing.status.status != "folded":
                raise _lost(standing, after)
        through = max(seen)
        winners = await self._unsealed(hold, after, through, seen)
        self._sealed = max(after.sealed, through + 1)
        return seal_payloads(call.writer, call.run_id, through, winners, epoch)

    async def told(self, hold: Hold, _ops: Sequence[Op]) -> dict[str, Any]:
        return await self._answer(hold)

    async def _answer(self, hold: Hold) -> dict[str, Any]:
        ids = self._ids
        try:
            found = append_answer(self._after, ids)
        except BelowSnapshot:
            found = append_answer(self._after, ids, await self._settled(hold, set(ids)))
        return found if self._sealed is None else {**found, "sealed": self._sealed}

    async def _settled(self, hold: Hold, wanted: set[str]) -> list[Standing]:
        """The standings of what was recorded at settled seqs, where it has lost, or was recorded before."""
        ledger = await WholeLedger.of(hold.pg, hold.where, self._call.run_id)
        through = max(record.seq for record in self._call.records)
        parts = [part async for part in ledger.standings(through=through)]
        return [standing for part in parts for standing in part if standing.item.place.id in wanted]


@dataclass(slots=True)
class Sealing(_Recording):
    """One seal."""

    _answer: dict[str, Any] = field(init=False, default_factory=dict)

    def of(self, call: SealCall) -> Plan:
        """Raises stale_epoch; gap for a seq that is not folded, seal_mismatch for a winner that is another by now."""
        self.stream = call.run_id
        self._seen = seen_at(call.through_seq, call.winners)
        return partial(self._plan, call, self._seen)

    async def _plan(self, call: SealCall, seen: Mapping[int, str], hold: Hold) -> list[Draft] | dict[str, Any]:
        merged = await self.now(hold)
        await fence(hold, merged.state.agent_id, call.writer, call.epoch, "seal")
        winners = await self._unsealed(hold, merged, call.through_seq, seen)
        self._answer = {
            "sealed": max(merged.sealed, call.through_seq + 1),
            "next_seq": merged.state.next_seq,
            "command": merged.state.command,
        }
        seals = seal_payloads(call.writer, call.run_id, call.through_seq, winners, call.epoch)
        return drafts_of(RUN_LEDGER, seals) or self._answer

    async def told(self, _hold: Hold, _ops: Sequence[Op]) -> dict[str, Any]:
        return self._answer


async def fence(hold: Hold, agent: str | None, writer: str, claimed: int, doing: Literal["append", "seal"]) -> None:
    """Raises stale_epoch unless a writer may act for a run's agent at the epoch that it claims.

    The lease stays as it is until the transaction ends. The epochs of seals do not count: our own were granted, and a
    device may push one of any epoch. While nobody knows whose run it is, none is stale.
    """
    floor, lease = 0, None
    if agent is not None:
        register = await leases.lock(hold.pg, hold.where.scope, slug(agent), agent)
        fences = await leases.floor(hold.pg, hold.where.scope, slug(agent))
        floor = max(register.epoch, fences.epoch if fences.leaves_room else 0)
        lease = register.current
    decision = (check_seal if doing == "seal" else check_append)(lease, floor, writer, claimed)
    if decision["decision"] != "proceed":
        facts = {
            "agent_id": agent,
            "claimed_epoch": claimed,
            "current_epoch": decision.get("current_epoch", floor),
            "current_holder": decision.get("current_holder"),
        }
        raise Problem("stale_epoch", f"the writer may not {doing} at epoch {claimed}", facts)


def _known(merged: Merged) -> dict[str, Any]:
    return {"next_seq": merged.state.next_seq, "sealed": merged.sealed}


def _lost(standing: Standing, after: Merged) -> Problem:
    status = standing.status.status
    detail = f"the record at seq {standing.item.seq} is {status}: it starts nothing"
    return Problem("seal_mismatch", detail, {"seq": standing.item.seq, "standing": told(standing), **_known(after)})
