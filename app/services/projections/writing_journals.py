"""What hosted writers add to a session, and claim of it, under the scope's lock (journal.md §8, server.md §7)."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from app.services.hosting import Hold, Plan
from app.services.projections.journals import FOLD
from app.services.projections.writes import StreamWrite, drafts_of
from app.sql import claims
from app.sql.keys import stream_key
from foldpoint.hosted import Draft
from foldpoint.journal.calls import Appending, Claiming, read_claim
from foldpoint.journal.claims import Claim, claim, claimable
from foldpoint.journal.records import Seen
from foldpoint.journal.state import JournalState
from foldpoint.op import Op
from foldpoint.projections import JOURNAL

#: Entries beyond those asked for, among which some may be claimed already.
AHEAD = 64


@dataclass(slots=True)
class Append(StreamWrite[JournalState]):
    """One call that appends entries."""

    fold = FOLD
    seen: Seen | None = None

    def plan(self, asked: Appending, writer: str) -> Plan:
        self.stream = asked.session if asked.now else None

        async def plan(hold: Hold) -> list[Draft]:
            self.seen = asked.seen
            if asked.now:
                self.seen = dict((await self.now(hold)).view.heads)
            return drafts_of(JOURNAL, asked.payloads(writer, self.seen, secrets.token_hex(8)))

        return plan

    async def told(self, _hold: Hold, ops: Sequence[Op]) -> dict[str, Any]:
        return {"ops": [op.to_json() for op in ops], "seen": self.seen}


@dataclass(slots=True)
class Take(StreamWrite[JournalState]):
    """One call that claims entries of a queue."""

    fold = FOLD
    found: Claim = field(default_factory=lambda: Claim([], None, {}, []))

    def plan(self, fields: dict[str, Any], writer: str) -> Plan:
        asked = read_claim(fields)
        self.stream = asked.session

        async def plan(hold: Hold) -> list[Draft] | dict[str, Any]:
            self.found = await _next(hold, await self.now(hold), asked)
            if not self.found.entries:
                return {"entries": [], "op": None}
            return drafts_of(JOURNAL, [self.found.payload(writer, asked.session, secrets.token_hex(8))])

        return plan

    async def told(self, _hold: Hold, ops: Sequence[Op]) -> dict[str, Any]:
        return {"entries": [queued._asdict() for queued in self.found.entries], "op": ops[0].to_json()}


async def _next(hold: Hold, state: JournalState, asked: Claiming) -> Claim:
    """What a claim is handed. Most often none of what waits was handed out before, so not all of it is asked about."""
    waiting = claimable(state, asked.queue)
    taken: set[str] = set()
    known = 0
    while True:
        upto = max(2 * known, asked.most + AHEAD)
        names = [queued.id for queued in waiting[known:upto]]
        taken |= await claims.taken(hold.pg, hold.where.scope, stream_key(asked.session), names)
        known = upto
        if known >= len(waiting) or known - len(taken) >= asked.most:
            return claim(state, asked.queue, asked.most, taken)
