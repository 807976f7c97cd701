"""The rules of journal.md §8.3–8.4 written down as they are said, for histories short enough to fold anew each time."""

from typing import Any

from foldpoint.journal.records import Entry
from foldpoint.journal.state import JournalState


class Model:
    """The fold of some entries in order. All lists hold ids; an entry judges from the view it had among these."""

    def __init__(self, entries: tuple[Entry, ...], views: "dict[tuple[str, ...], Model] | None" = None) -> None:
        self.views: dict[tuple[str, ...], Model] = {} if views is None else views
        self.messages: list[str] = []
        self.frames: list[tuple[str, list[str]]] = []
        self.queues: dict[str, list[str]] = {"steer": [], "follow_up": []}
        self.since: list[str] = []
        self.covered: dict[str, set[str]] = {}
        self.checkpoint: int | None = None
        self.checkpoints: dict[str, int] = {}
        self.taken: dict[str, list[str]] = {}
        for index, entry in enumerate(entries):
            visible = tuple(other for other in entries[:index] if is_visible(other, entry))
            self.take(entry, visible)

    def take(self, entry: Entry, visible: tuple[Entry, ...]) -> None:
        op = entry.op
        match op["op"]:
            case "message":
                self.messages.append(entry.id)
                self.since.append(entry.id)
            case "rewind":
                view = self.of(visible).messages
                removed = set(view[min(op["to"], len(view)) :])
                self.frames.append((entry.id, [message for message in self.messages if message in removed]))
                self.messages = [message for message in self.messages if message not in removed]
                self.forget()
            case "unrewind":
                self.unrewind(self.of(visible).frames)
                self.forget()
            case "checkpoint":
                self.checkpoint = self.checkpoints[entry.author] = op["messages"]
                self.covered.setdefault(entry.author, set()).update(other.id for other in visible)
            case "enqueue":
                self.queues[op["queue"]].append(entry.id)
            case "dequeue":
                for target in self.of(visible).queues[op["queue"]][: op["count"]]:
                    self.taken.setdefault(target, []).append(entry.id)
                self.queues[op["queue"]] = [one for one in self.queues[op["queue"]] if one not in self.taken]

    def of(self, entries: tuple[Entry, ...]) -> "Model":
        """The model of a view; a view is asked for again and again."""
        ids = tuple(entry.id for entry in entries)
        if ids not in self.views:
            self.views[ids] = Model(entries, self.views)
        return self.views[ids]

    def unrewind(self, seen: list[tuple[str, list[str]]]) -> None:
        newest = [name for name, _ in seen[-1:]]
        for frame in self.frames:
            if frame[0] in newest:
                self.frames.remove(frame)
                self.messages += frame[1]
                break

    def forget(self) -> None:
        self.since, self.covered, self.checkpoint, self.checkpoints = [], {}, None, {}

    def unpersisted(self, author: str | None = None) -> list[str]:
        """What no checkpoint covers, or none of one author."""
        of_all = set().union(*self.covered.values())
        covered = of_all if author is None else self.covered.get(author, set())
        return [message for message in self.since if message not in covered]

    def described(self) -> dict[str, Any]:
        return {
            "messages": self.messages,
            "frames": [[name, messages] for name, messages in self.frames],
            "queues": self.queues,
            "unpersisted": self.unpersisted(),
            "unpersisted_by": {author: self.unpersisted(author) for author in ("a", "b", "c")},
            "checkpoint": self.checkpoint,
            "checkpoints": self.checkpoints,
            "double": {entry: dequeues for entry, dequeues in self.taken.items() if len(dequeues) > 1},
        }


def is_visible(other: Entry, entry: Entry) -> bool:
    """Whether an earlier entry is in the view of a later one (§8.3, server.md §8)."""
    if entry.seen is None or other.author == entry.author:
        return True
    return other.hlc.device_id in entry.seen and other.stamp <= entry.seen[other.hlc.device_id]


def described(state: JournalState) -> dict[str, Any]:
    """What the model says, of the state of a real fold."""
    view = state.view
    return {
        "messages": [message.id for message in view.messages],
        "frames": [[frame.id, [message.id for message in frame.messages]] for frame in view.undo_stack],
        "queues": {queue: [queued.id for queued in waiting] for queue, waiting in view.queues.items()},
        "unpersisted": [message.id for message in state.unpersisted()],
        "unpersisted_by": {
            author: [message.id for message in state.unpersisted_by(author)] for author in ("a", "b", "c")
        },
        "checkpoint": state.checkpoint_messages,
        "checkpoints": state.last_checkpoints,
        "double": {delivery.entry: list(delivery.dequeues) for delivery in state.double_delivery.values()},
    }
