"""The path of a pushed op: from a device's request to the folded state.

A request is read op by op, and admitted in chunks; each chunk is one transaction under the scope's lock, so
that a request that dies half-way has made progress and its retry is deduplicated.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from sqlalchemy.ext.asyncio import AsyncEngine

from app.away import DATABASE_ERRORS, unavailable
from app.problems import Problem
from app.services.access import Caller
from app.services.keys.vault import Vault
from app.services.pushing.arrivals import SPLIT_BYTES, BodyUnreadable, Reading, Sent, in_seq_order, off_loop
from app.services.pushing.lanes import Lanes
from app.services.pushing.turns import Admitted, Batch
from app.settings import Settings
from foldpoint.relay import Refusal

#: Ops of one transaction. Larger ones hold the scope's lock longer and gain nothing.
CHUNK = 1_000
NOTHING = {"accepted": 0, "deduped": 0}


class Result(StrEnum):
    """What became of one op of a request."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    REJECTED = "rejected"
    NOT_ATTEMPTED = "not_attempted"


@dataclass(slots=True)
class Pushed:
    """What became of a request, op by op as they were sent.

    `refusal` is why it stopped; the ops before that stay stored. An op id is as claimed, None if it cannot be read.
    """

    results: list[Result]
    op_ids: list[str | None]
    accepted: int = 0
    deduped: int = 0
    refusal: Refusal | None = None

    @classmethod
    def of(cls, sent: Sequence[Sent]) -> "Pushed":
        ids = {one.place: one.op_id for one in sent}
        return cls([Result.NOT_ATTEMPTED] * len(sent), [ids[place] for place in range(len(sent))])

    @property
    def counts(self) -> dict[str, int]:
        return {"accepted": self.accepted, "deduped": self.deduped}

    def take(self, admitted: Admitted) -> None:
        self.accepted += len(admitted.stored)
        self.deduped += len(admitted.duplicates)
        for index in admitted.stored:
            self.results[index] = Result.STORED
        for index in admitted.duplicates:
            self.results[index] = Result.DUPLICATE
        if admitted.rejected is not None:
            self.results[admitted.rejected] = Result.REJECTED
        self.refusal = admitted.refusal


@dataclass(slots=True)
class Pusher:
    """Takes pushes of one server process."""

    engine: AsyncEngine
    settings: Settings
    vault: Vault = field(default_factory=Vault)
    lanes: Lanes = field(init=False)

    def __post_init__(self) -> None:
        self.lanes = Lanes(self.engine, self.settings, self.vault)

    async def push(self, caller: Caller, scope: str, device: str, body: bytes, *, on_wire: bool) -> Pushed:
        """Push a body for a device's slug in a scope; on the device wire the call is a contact.

        Raises Problem for a call that is refused as a whole; a refused op is in the answer.
        """
        try:
            sent = await self._sent(body)
        except Problem:
            await self.lanes.run(scope, Batch(caller, device, Reading((), {}), on_wire))
            raise
        pushed = Pushed.of(sent)
        for start in range(0, max(len(sent), 1), CHUNK):
            reading = Reading(sent[start : start + CHUNK], self.settings.limits())
            await reading.begin()
            try:
                pushed.take(await self.lanes.run(scope, Batch(caller, device, reading, on_wire)))
            except Problem as problem:
                raise problem.beside(**pushed.counts) from problem
            except DATABASE_ERRORS as error:
                if (away := unavailable(error)) is None:
                    raise
                raise away.beside(**pushed.counts) from error
            if pushed.refusal is not None:
                break
        return pushed

    async def _sent(self, body: bytes) -> list[Sent]:
        try:
            sent = await off_loop(len(body), in_seq_order, body, above=SPLIT_BYTES)
        except BodyUnreadable as error:
            raise Problem("invalid_request", str(error), {"path": "", **NOTHING}) from error
        limit = self.settings.max_ops_per_request
        if len(sent) > limit:
            facts = {**self.settings.limits(), **NOTHING}
            raise Problem("too_many_ops", f"{len(sent)} ops; a request may have {limit}", facts)
        return sent
