"""Where a fold can go on: a state, and what else later records need of the records in it (server.md §8)."""

from dataclasses import dataclass, field
from typing import Any

from foldpoint.canonical import Json, Unreadable, canonical, read_json
from foldpoint.hlc import Hlc
from foldpoint.journal.records import Stamp
from foldpoint.journal.state import Delivery, JournalState, Place
from foldpoint.journal.view import Frame, Message, Queued, View
from foldpoint.journal.views import Judged

#: Of the form and of the fold: what another fold made is not to be gone on with.
VERSION = 2

_PLAIN = (
    *("kept", "checkpoint_messages", "last_checkpoints", "plan", "renames", "upgrades", "upgraded_by"),
    *("model_changes", "usage", "records", "skipped"),
)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of the records up to `state.at`; never changed.

    Of later records that were folded already and had not seen all of it, `judged` is what they mean, and `taken`
    who in it took the queue entries that they mean.
    """

    state: JournalState = field(default_factory=JournalState)
    judged: Judged = field(default_factory=dict)
    taken: dict[str, Delivery] = field(default_factory=dict)


def write_snapshot(snapshot: Snapshot) -> bytes:
    """Canonical JSON. It grows with the state, not with the history behind it."""
    state, view = snapshot.state, snapshot.state.view
    value: dict[str, Json] = {
        "version": VERSION,
        "at": _place_json(state.at),
        "messages": [_message_json(message) for message in view.messages],
        "undo_stack": [[frame.id, [_message_json(message) for message in frame.messages]] for frame in view.undo_stack],
        "queues": _queues_json(view.queues),
        "undelivered": _queues_json(state.undelivered),
        "heads": _stamps_json(view.heads),
        "covered": {author: _stamps_json(covered) for author, covered in state.covered.items()},
        "double_delivery": [delivery.to_json() for delivery in state.double_delivery.values()],
        "renamed_at": _place_json(state.renamed_at),
        "judged": [[name, _stamps_json(dict(stamps)), ids] for (name, stamps), ids in snapshot.judged.items()],
        "taken": [delivery.to_json() for delivery in snapshot.taken.values()],
        **{name: getattr(state, name) for name in _PLAIN},
    }
    return canonical(value)


def read_snapshot(text: bytes) -> Snapshot:
    """Read a text that `write_snapshot` wrote. Raises Unreadable if another version did."""
    value: Any = read_json(text)
    if value.get("version") != VERSION:
        raise Unreadable("another version", "version")
    view = View(
        [_message(message) for message in value["messages"]],
        [Frame(name, [_message(message) for message in messages]) for name, messages in value["undo_stack"]],
        _queues(value["queues"]),
        _stamps(value["heads"]),
    )
    plain = {name: value[name] for name in _PLAIN}
    plain["renames"] = [tuple(rename) for rename in plain["renames"]]
    plain["upgrades"] = [tuple(upgrade) for upgrade in plain["upgrades"]]
    state = JournalState(
        at=_place(value["at"]),
        view=view,
        covered={author: _stamps(covered) for author, covered in value["covered"].items()},
        double_delivery=_deliveries(value["double_delivery"]),
        undelivered=_queues(value["undelivered"]),
        renamed_at=_place(value["renamed_at"]),
        **plain,
    )
    judged = {(name, frozenset(_stamps(stamps).items())): ids for name, stamps, ids in value["judged"]}
    return Snapshot(state, judged, _deliveries(value["taken"]))


def _queues_json(queues: dict[str, list[Queued]]) -> Json:
    return {queue: [list(queued) for queued in waiting] for queue, waiting in queues.items()}


def _queues(value: Any) -> dict[str, list[Queued]]:
    return {queue: [Queued(*queued) for queued in waiting] for queue, waiting in value.items()}


def _place_json(place: Place | None) -> Json:
    return place and [*place.hlc, place.op_id]


def _place(value: Any) -> Place | None:
    return value and Place(Hlc(*value[:3]), value[3])


def _stamps_json(stamps: dict[str, Stamp]) -> dict[str, Json]:
    return {device: list(stamp) for device, stamp in stamps.items()}


def _stamps(value: Any) -> dict[str, Stamp]:
    return {device: (wall_ms, counter) for device, (wall_ms, counter) in value.items()}


def _deliveries(values: Any) -> dict[str, Delivery]:
    return {value["entry"]: Delivery(**{**value, "dequeues": tuple(value["dequeues"])}) for value in values}


def _message_json(message: Message) -> Json:
    return [message.id, message.device, *message.stamp, message.value]


def _message(value: Any) -> Message:
    name, device, wall_ms, counter, said = value
    return Message(name, device, (wall_ms, counter), said)
