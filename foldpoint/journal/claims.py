"""Taking queued entries exactly once, which the fold alone cannot promise (journal.md §8.4)."""

from collections.abc import Container
from typing import NamedTuple

from foldpoint.journal.ops import JournalOp
from foldpoint.journal.records import Seen
from foldpoint.journal.state import JournalState
from foldpoint.journal.view import Queued


class Claim(NamedTuple):
    """The entries to hand out, and the op to append with them, if there are any.

    With the claim's `seen` that op means these entries and those before them that were taken already, whatever
    sorts below it later.
    """

    entries: list[Queued]
    dequeue: JournalOp | None
    seen: Seen


def claim(state: JournalState, queue: str, count: int, taken: Container[str]) -> Claim:
    """The next `count` entries of a queue, or fewer, without those `taken` by earlier claims, by id."""
    waiting = state.view.queues[queue]
    free = [(place, queued) for place, queued in enumerate(waiting, 1) if queued.id not in taken][:count]
    dequeue = {"op": "dequeue", "queue": queue, "count": free[-1][0]} if free else None
    return Claim([queued for _, queued in free], dequeue, dict(state.view.heads))
