"""Taking queued entries exactly once, which the fold alone cannot promise (journal.md §8.4).

Only the server claims, on hosted chains, and keeps what it handed out. The dequeue it appends says so in its payload's
`source`, `{"claim": [ids of entries], "nonce"}`, from which the server knows it again.
"""

from collections.abc import Container
from typing import NamedTuple

from foldpoint.canonical import Json
from foldpoint.journal.ops import JournalOp
from foldpoint.journal.records import Seen, read_record, write_payload
from foldpoint.journal.state import JournalState
from foldpoint.journal.view import Queued
from foldpoint.state import Record

#: The most entries of one claim; their texts, but for the first, have no more than so many bytes.
MOST, MOST_BYTES = 1_000, 4 * 1024 * 1024


class Claim(NamedTuple):
    """The entries to hand out, and the op to append with them, if there are any.

    With the claim's `seen` that op means the entries that are `named`: these, and those before them that were taken
    already. Should it come to mean another one, that was put there by its author's writing something again, the
    fold knows it as undelivered, and it is handed out by the next claim.
    """

    entries: list[Queued]
    dequeue: JournalOp | None
    seen: Seen
    named: list[str]

    def payload(self, author: str, session: str, nonce: str) -> dict[str, Json]:
        """The payload that carries the op."""
        source: Json = {"claim": self.named, "nonce": nonce}
        return write_payload(author, session, self.dequeue, seen=self.seen, source=source)


def claimable(state: JournalState, queue: str) -> list[Queued]:
    """What claims may hand out of a queue, unless it was taken: what none was handed, then what waits."""
    return [*state.undelivered[queue], *state.view.queues[queue]]


def claim(state: JournalState, queue: str, count: int, taken: Container[str]) -> Claim:
    """The next `count` entries of a queue, or fewer, without those `taken` by earlier claims, by id."""
    free: list[Queued] = []
    place = size = 0
    for at, queued in enumerate(claimable(state, queue), 1):
        if len(free) == count:
            break
        if queued.id not in taken:
            size += len(queued.text.encode())
            if free and size > MOST_BYTES:
                break
            free.append(queued)
            place = at
    passed = max(0, place - len(state.undelivered[queue]))
    named = [queued.id for queued in free]
    named += [queued.id for queued in state.view.queues[queue][:passed] if queued.id in taken]
    dequeue = {"op": "dequeue", "queue": queue, "count": passed} if free else None
    return Claim(free, dequeue, dict(state.view.heads), named)


def claimed_by(record: Record) -> list[bytes]:
    """The ids of the entries that a record handed out."""
    entry = read_record(record) if b'"claim":' in record.payload else None
    return [] if entry is None else [bytes.fromhex(name) for name in sorted(entry.claimed or ())]
