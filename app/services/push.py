"""The path of a pushed op: from a device's request to the folded state.

A request is read op by op, and admitted in chunks; each chunk is one transaction under the scope's lock, so
that a request that dies half-way has made progress and its retry is deduplicated.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ParamSpec, TypeVar

from sqlalchemy.ext.asyncio import AsyncEngine

from app.problems import Problem
from app.services.access import Caller
from app.services.admitting import Admitted, Batch, admit
from app.services.arrivals import BodyUnreadable, Sent, in_seq_order, read_arrivals
from app.services.lanes import Lanes
from app.settings import Settings
from foldpoint.admission import HOSTED_PREFIX
from foldpoint.relay import Refusal

#: Ops of one transaction. Larger ones hold the scope's lock longer and gain nothing.
CHUNK = 1_000
#: Above so many bytes reading leaves the event loop for a thread.
OFF_LOOP_BYTES = 64 * 1024


P = ParamSpec("P")
T = TypeVar("T")


class Result(StrEnum):
    """What became of one op of a request."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    REJECTED = "rejected"
    NOT_ATTEMPTED = "not_attempted"


@dataclass(slots=True)
class Pushed:
    """What became of a request, op by op as they were sent.

    `refusal` is why it stopped; the ops before that stay stored. An op id is None if it could not be read.
    """

    results: list[Result]
    op_ids: list[str | None]
    accepted: int = 0
    deduped: int = 0
    refusal: Refusal | None = None

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
    lanes: Lanes[Batch, Admitted] = field(init=False)

    def __post_init__(self) -> None:
        self.lanes = Lanes(lambda scope, batches: admit(self.engine, self.settings, scope, batches))

    async def push(self, caller: Caller, scope: str, device: str, body: bytes, *, on_wire: bool) -> Pushed:
        """Push a body for a device's slug in a scope; on the device wire the call is a contact.

        Raises Problem for a call that is refused as a whole; a refused op is in the answer.
        """
        if device.startswith(HOSTED_PREFIX):
            raise Problem("reserved_device", "device ids of hosted chains are written by the server alone")
        sent = await self._sent(body)
        pushed = Pushed([Result.NOT_ATTEMPTED] * len(sent), [None] * len(sent))
        for start in range(0, max(len(sent), 1), CHUNK):
            batch = await self._read(caller, device, sent[start : start + CHUNK], on_wire=on_wire)
            for arrival in batch.arrivals:
                pushed.op_ids[arrival.place] = arrival.op.op_id
            pushed.take(await self.lanes.run(scope, batch))
            if pushed.refusal is not None:
                break
        return pushed

    async def _sent(self, body: bytes) -> list[Sent]:
        try:
            sent = await _maybe_off_loop(len(body), in_seq_order, body)
        except BodyUnreadable as error:
            raise Problem("invalid_request", str(error), {"accepted": 0, "deduped": 0}) from error
        limit = self.settings.max_ops_per_request
        if len(sent) > limit:
            raise Problem("too_many_ops", f"{len(sent)} ops; a request may have {limit}", self.settings.limits())
        return sent

    async def _read(self, caller: Caller, device: str, sent: Sequence[Sent], *, on_wire: bool) -> Batch:
        size = sum(len(text) for _, text in sent)
        arrivals, unreadable = await _maybe_off_loop(size, read_arrivals, sent, self.settings.max_op_bytes)
        return Batch(caller, device, arrivals, unreadable, on_wire)


async def _maybe_off_loop(size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    if size > OFF_LOOP_BYTES:
        return await asyncio.to_thread(work, *args, **kwargs)
    return work(*args, **kwargs)
