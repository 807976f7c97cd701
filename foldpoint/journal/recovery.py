"""Reopening a session: what its journal adds to a transcript that may be behind it (journal.md §5.3)."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from foldpoint.journal.ops import QUEUES
from foldpoint.journal.state import JournalState
from foldpoint.journal.view import Frame

#: A transcript without a checkpoint is held to be the system message alone.
_SYSTEM_MESSAGE = 1


class Recovery(NamedTuple):
    """`messages` are those to append to a transcript of `transcript_messages`.

    `unpersisted` counts what the transcript should lack; it is recovered whole, or not at all when the transcript
    is not `checkpoint_messages` long.
    """

    messages: list[dict[str, Any]]
    unpersisted: int
    checkpoint_messages: int
    transcript_messages: int

    def to_json(self) -> dict[str, Any]:
        return self._asdict()


def recover(state: JournalState, transcript_messages: int, author: str | None = None) -> Recovery:
    """Judge a transcript of so many messages, the system message included.

    With an author, its own last checkpoint is what its transcript must match (§8.4), and what none of its own
    checkpoints covers is what that transcript lacks.
    """
    if author is None:
        checkpoint, missing = state.checkpoint_messages, state.unpersisted()
    else:
        checkpoint, missing = state.last_checkpoints.get(author), state.unpersisted_by(author)
    expected = _SYSTEM_MESSAGE if checkpoint is None else checkpoint
    messages = [message.value for message in missing] if expected == transcript_messages else []
    return Recovery(messages, len(missing), expected, transcript_messages)


@dataclass(frozen=True, slots=True)
class Persistence:
    """What a harness is set to persist (§5.1)."""

    session: bool = True
    append_only: bool = False
    queues: bool = False
    todos: bool = False


class Armed(NamedTuple):
    """A reopened session. `checkpoint` is the number that opening the writer appends, if it does."""

    recovered: list[dict[str, Any]]
    queued: list[str]
    plan: list[dict[str, str]]
    undo_stack: list[Frame]
    writer: bool
    checkpoint: int | None


def arm(
    state: JournalState, transcript_messages: int, persistence: Persistence, plan_file: list[dict[str, str]] | None
) -> Armed:
    """Reopen a session as the harness does. An unreadable journal is an empty state, an unreadable plan file None."""
    if not persistence.session:
        return Armed([], [], [], [], writer=False, checkpoint=None)
    recovered = recover(state, transcript_messages).messages
    length = transcript_messages + len(recovered)
    return Armed(
        recovered,
        [queued.text for queue in QUEUES for queued in state.view.queues[queue]] if persistence.queues else [],
        (plan_file or state.plan) if persistence.todos else [],
        state.view.undo_stack,
        persistence.append_only,
        length if persistence.append_only and length > _SYSTEM_MESSAGE else None,
    )
