"""What a part of a session's entries folds to, as far as other ops depend on it (journal.md §3, §8.4)."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from foldpoint.journal.ops import FRAMING, QUEUES, JournalOp
from foldpoint.journal.records import Entry, Stamp

#: The kinds of op that a view is made of, and those of them whose effect depends on their author's view.
VIEWED = frozenset(("message", "rewind", "unrewind", "enqueue", "dequeue"))
JUDGED = frozenset(("rewind", "unrewind", "dequeue"))
#: The kinds of op of which it matters what their author had seen.
SEEING = JUDGED | {"checkpoint"}

_DROPPED = {name for name, *_ in FRAMING}


class Message(NamedTuple):
    """A message of the conversation: a Turn without its framing (§3.1)."""

    id: str
    device: str
    stamp: Stamp
    value: dict[str, Any]


class Frame(NamedTuple):
    """What one rewind removed, under the rewind's id; maybe nothing."""

    id: str
    messages: list[Message]


class Queued(NamedTuple):
    id: str
    text: str


class _Named(Protocol):
    @property
    def id(self) -> str: ...


N = TypeVar("N", bound=_Named)


@dataclass(slots=True)
class View:
    """The lists that ops count in, and each device's last stamp among the entries they were made of."""

    messages: list[Message] = field(default_factory=list)
    undo_stack: list[Frame] = field(default_factory=list)
    queues: dict[str, list[Queued]] = field(default_factory=lambda: {queue: [] for queue in QUEUES})
    heads: dict[str, Stamp] = field(default_factory=dict)

    def copy(self) -> "View":
        queues = {queue: list(waiting) for queue, waiting in self.queues.items()}
        return View(list(self.messages), list(self.undo_stack), queues, dict(self.heads))

    def targets(self, op: JournalOp) -> list[str]:
        """The ids of what an op means, if this is what its author saw."""
        match op["op"]:
            case "rewind":
                return _ids(self.messages[op["to"] :])
            case "unrewind":
                return _ids(self.undo_stack[-1:])
            case "dequeue":
                return _ids(self.queues[op["queue"]][: op["count"]])
            case _:
                return []

    def apply(self, entry: Entry, targets: list[str]) -> list[Queued]:
        """Apply an entry whose op means those `targets` that are still here. What it took from a queue."""
        self.heads[entry.hlc.device_id] = entry.stamp
        op = entry.op
        match op["op"]:
            case "message":
                value = {name: part for name, part in op["message"].items() if name not in _DROPPED}
                self.messages.append(Message(entry.id, entry.hlc.device_id, entry.stamp, value))
            case "rewind":
                self.undo_stack.append(Frame(entry.id, _take(self.messages, targets)))
            case "unrewind":
                for frame in _take(self.undo_stack, targets):
                    self.messages.extend(frame.messages)
            case "enqueue":
                self.queues[op["queue"]].append(Queued(entry.id, op["text"]))
            case "dequeue":
                return _take(self.queues[op["queue"]], targets)
        return []


def _ids(items: Iterable[_Named]) -> list[str]:
    return [item.id for item in items]


def _take(items: list[N], ids: list[str]) -> list[N]:
    """Take the items of these ids out of the list, in the list's order."""
    for start in (0, max(0, len(items) - len(ids))):  # a queue's front, a list's tail: without walking the rest
        run = items[start : start + len(ids)]
        if _ids(run) == ids:
            del items[start : start + len(ids)]
            return run
    wanted = set(ids)
    taken = [item for item in items if item.id in wanted]
    items[:] = [item for item in items if item.id not in wanted]
    return taken
