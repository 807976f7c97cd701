"""JournalState: what a session's entries fold to, and its wire form (journal.md §3.1, §8.4)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from foldpoint.canonical import Json
from foldpoint.hlc import Hlc
from foldpoint.journal.ops import QUEUES
from foldpoint.journal.records import Entry, Stamp
from foldpoint.journal.view import Message, Queued, View
from foldpoint.journal.views import seen_by

_NEVER: Stamp = (-1, 0)


class Place(NamedTuple):
    """Where a record stands in the order of records."""

    hlc: Hlc
    op_id: str


class Delivery(NamedTuple):
    """An entry of a queue and the dequeues that meant it, by the ids of their payloads."""

    queue: str
    entry: str
    text: str
    dequeues: tuple[str, ...]

    def to_json(self) -> dict[str, Json]:
        return {**self._asdict(), "dequeues": list(self.dequeues)}


@dataclass(slots=True)
class JournalState:
    """Built by the fold, then only read. `at` is the place of the last record in it.

    `kept` is how many messages the last rewind or unrewind left. Of the messages after them, `covered` says up to
    which stamp of each device an author's checkpoints cover them; `last_checkpoints` is each author's last number.
    Both, and `checkpoint_messages`, know only of checkpoints since that rewind or unrewind.
    """

    at: Place | None = None
    view: View = field(default_factory=View)
    kept: int = 0
    covered: dict[str, dict[str, Stamp]] = field(default_factory=dict)
    checkpoint_messages: int | None = None
    last_checkpoints: dict[str, int] = field(default_factory=dict)
    #: By entry: what several devices took, each not having seen the others do it.
    double_delivery: dict[str, Delivery] = field(default_factory=dict)
    #: What the dequeue of a claim took from a queue that the claim did not hand out.
    undelivered: dict[str, list[Queued]] = field(default_factory=lambda: {queue: [] for queue in QUEUES})
    plan: list[dict[str, str]] = field(default_factory=list)
    renames: list[tuple[str, str]] = field(default_factory=list)
    renamed_at: Place | None = None
    upgrades: list[tuple[int, int, str]] = field(default_factory=list)
    #: The author of each upgrade: it speaks of a file of that device.
    upgraded_by: list[str] = field(default_factory=list)
    model_changes: list[dict[str, Any]] = field(default_factory=list)
    usage: list[dict[str, Any]] = field(default_factory=list)
    records: int = 0
    skipped: int = 0

    def copy(self) -> "JournalState":
        """A state that can be folded onto without changing this one; what never changes is shared."""
        return replace(
            self,
            view=self.view.copy(),
            covered={author: dict(covered) for author, covered in self.covered.items()},
            last_checkpoints=dict(self.last_checkpoints),
            double_delivery=dict(self.double_delivery),
            undelivered={queue: list(missed) for queue, missed in self.undelivered.items()},
            renames=list(self.renames),
            upgrades=list(self.upgrades),
            upgraded_by=list(self.upgraded_by),
            model_changes=list(self.model_changes),
            usage=list(self.usage),
        )

    @property
    def handle(self) -> str | None:
        """The session's name now; only a label."""
        return self.renames[-1][1] if self.renames else None

    def unpersisted(self) -> list[Message]:
        """The messages since the last rewind or unrewind that no checkpoint covers."""
        return [message for message in self.view.messages[self.kept :] if not self._covers(message)]

    def unpersisted_by(self, author: str) -> list[Message]:
        """As `unpersisted`, by this author's own checkpoints."""
        covered = self.covered.get(author, {})
        return [message for message in self.view.messages[self.kept :] if not _is_covered(message, covered)]

    def _covers(self, message: Message) -> bool:
        return any(_is_covered(message, covered) for covered in self.covered.values())

    def rebase(self) -> None:
        """Forget the checkpoints, as every rewind and unrewind does."""
        self.kept = len(self.view.messages)
        self.covered, self.last_checkpoints, self.checkpoint_messages = {}, {}, None

    def check(self, entry: Entry) -> None:
        """Take a checkpoint in: it covers the messages that its author had seen."""
        self.checkpoint_messages = self.last_checkpoints[entry.author] = entry.op["messages"]
        covered = self.covered.setdefault(entry.author, {})
        for device, stamp in seen_by(entry, self.view.heads).items():
            covered[device] = max(stamp, covered.get(device, _NEVER))

    def note(self, entry: Entry) -> None:
        """Take in an op that touches nothing but a list of its own."""
        op = entry.op
        match op["op"]:
            case "plan":
                self.plan = op["steps"]
            case "rename":
                self.renames.append((op["from"], op["to"]))
                self.renamed_at = Place(entry.hlc, entry.op_id)
            case "upgrade":
                self.upgrades.append((op["from_version"], op["to_version"], op["original"]))
                self.upgraded_by.append(entry.author)
            case "model_change":
                self.model_changes.append(op["record"])
            case "usage":
                self.usage.append(op["record"])

    def to_json(self) -> dict[str, Json]:
        """The state as journal.md §3.1 spells it, and what several devices add to it."""
        view = self.view
        return {
            "messages": [message.value for message in view.messages],
            "unpersisted": [message.value for message in self.unpersisted()],
            "checkpoint_messages": self.checkpoint_messages,
            "undo_stack": [[message.value for message in frame.messages] for frame in view.undo_stack],
            **{f"{queue}_queue": [queued.text for queued in waiting] for queue, waiting in view.queues.items()},
            "plan": self.plan,
            "renames": [list(rename) for rename in self.renames],
            "upgrades": [list(upgrade) for upgrade in self.upgrades],
            "model_changes": self.model_changes,
            "usage": self.usage,
            "records": self.records,
            "skipped": self.skipped,
            "double_delivery": [delivery.to_json() for delivery in self.double_delivery.values()],
            "last_checkpoints": dict(self.last_checkpoints),
            "upgraded_by": list(self.upgraded_by),
            "handle": self.handle,
        }


def _is_covered(message: Message, covered: Mapping[str, Stamp]) -> bool:
    return message.stamp <= covered.get(message.device, _NEVER)
