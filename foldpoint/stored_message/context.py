"""A restored context: live messages with what they were counted as (stored-message.md §6)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

from foldpoint.canonical import canonical
from foldpoint.hlc import U32_MAX
from foldpoint.stored_message.context_vm import empty_context_vm
from foldpoint.stored_message.handles import Handles
from foldpoint.stored_message.knowledge import Slot, restore_slot
from foldpoint.stored_message.live import Live, Part, restore_message
from foldpoint.stored_message.message import Partition, StoredMessage
from foldpoint.stored_message.refusals import Incompatible
from foldpoint.stored_message.writing import write_message

_ORIGINS = {"system": "system", "user": "user", "assistant": "assistant", "tool": "tool_result"}


class Row(NamedTuple):
    """One message of a partition. `tokens` is what it carried, and what totals are made of.

    Without a `measurement` or an `item`, nobody measured it or gave it an identity.
    """

    live: Live
    tokens: int
    measurement: dict[str, Any] | None = None
    item: dict[str, Any] | None = None

    @property
    def measured(self) -> int:
        """The tokens it is written back with."""
        return self.measurement["tokens"] if self.measurement else self.tokens

    @property
    def counted(self) -> int | None:
        """Its tokens for rendering; None if they were measured on another body, where the kernel recounts."""
        if self.measurement and self.measurement["fingerprint"] != fingerprint(self.live):
            return None
        return self.measured

    @property
    def item_id(self) -> int:
        return self.item["id"] if self.item else 0

    def write_measurement(self) -> dict[str, Any]:
        return self.measurement or {
            "fingerprint": fingerprint(self.live),
            "tokens": self.tokens,
            "source": {"kind": "host_provided"},
            "confidence": "high_confidence",
        }

    def write_item(self) -> dict[str, Any]:
        return self.item or {"id": 0, "origin": _ORIGINS[self.live.role], "injected_turn": 0}


def fingerprint(live: Live) -> str:
    """What a measurement is tied to: the role, the content as durable blocks, and the calls."""
    parts = [{"type": "text", "text": live.content}] if isinstance(live.content, str) else live.content
    material = [live.role, [_material(part) for part in parts], [call._asdict() for call in live.tool_calls]]
    return "sha256:" + sha256(canonical(material)).hexdigest()


def _material(part: Part) -> Part:
    if part["type"] != "tool_result":
        return part
    material = {name: part[name] for name in ("type", "call_id", "is_error")}
    text = {"blocks": [{"type": "text", "text": part["output"]}]}
    return {**material, "content": part.get("durable_content", text)}


class Held(NamedTuple):
    """A message that waits for the results of the current calls: not counted, not shown."""

    live: Live
    tokens: int


@dataclass(frozen=True, slots=True)
class Context:
    """Never changed; what happens to a context gives a new one. `rest` is what no message depends on."""

    system: Sequence[Row] = ()
    history: Sequence[Row] = ()
    held: Sequence[Held] = ()
    knowledge: Sequence[Slot] = ()
    handles: Handles = field(default_factory=lambda: Handles([]))
    frozen_history_len: int = 0
    rest: Mapping[str, Any] = field(default_factory=empty_context_vm)

    @property
    def partition_tokens(self) -> dict[str, int]:
        """The sums of what the messages carry; nothing is recounted."""
        return {
            "system": sum(row.tokens for row in self.system),
            "knowledge": sum(slot.tokens for slot in self.knowledge),
            "history": sum(row.tokens for row in self.history),
        }

    def check_totals(self) -> None:
        """Raises Incompatible if a partition holds more tokens than the kernel can count (§10)."""
        if max(self.partition_tokens.values()) > U32_MAX:
            raise Incompatible(f"a partition holds more than {U32_MAX} tokens", "partition_tokens")

    def messages(self) -> list[StoredMessage]:
        """Written back: system before history, with the tokens that were measured."""
        return [*self._written("system", self.system), *self._written("history", self.history)]

    def held_messages(self) -> list[StoredMessage]:
        return [write_message(held.live, "history", held.tokens, self.handles) for held in self.held]

    def _written(self, partition: Partition, rows: Iterable[Row]) -> list[StoredMessage]:
        return [write_message(row.live, partition, row.measured, self.handles) for row in rows]

    def to_vm(self) -> dict[str, Any]:
        """The `context_vm` that the kernel would write now. Raises Incompatible for totals above u32."""
        self.check_totals()
        written = {
            "messages": self.messages(),
            "held_history": self.held_messages(),
            "knowledge": [slot.to_json(self.handles) for slot in self.knowledge],
            "handles": self.handles.to_json(),
            "system_measurements": [row.write_measurement() for row in self.system],
            "history_measurements": [row.write_measurement() for row in self.history],
            "history_items": [row.write_item() for row in self.history],
            "partition_tokens": self.partition_tokens,
            "history_len": len(self.history),
            "frozen_history_len": self.frozen_history_len,
        }
        absent = {name for name in ("held_history", "history_items") if not written[name]}
        kept = {**self.rest, **written}
        return {name: value for name, value in kept.items() if name not in absent}


def restore_context(vm: Mapping[str, Any]) -> Context:
    """The restore gate for a decoded `context_vm`. Stored totals and lengths are ignored. Raises Incompatible."""
    context = _restored(vm)
    context.check_totals()
    return context


def context_of(messages: Iterable[StoredMessage]) -> Context:
    """The context that holds these messages and nothing else, whatever their tokens add up to. Raises Incompatible."""
    return _restored({**empty_context_vm(), "messages": list(messages)})


def _restored(vm: Mapping[str, Any]) -> Context:
    rows: dict[str, list[Row]] = {"system": [], "history": []}
    for message in vm["messages"]:
        rows[message["partition"]].append(Row(_live(message), message["tokens"]))
    if vm["frozen_history_len"] > len(rows["history"]):
        raise Incompatible("more history is frozen than there is", "frozen_history_len")
    history = _measured(rows["history"], vm["history_measurements"])
    items = vm.get("history_items", [])
    if len(items) == len(history):
        history = [row._replace(item=item) for row, item in zip(history, items, strict=True)]
    return Context(
        _measured(rows["system"], vm["system_measurements"]),
        history,
        [Held(_live(message), message["tokens"]) for message in vm.get("held_history", [])],
        [restore_slot(slot) for slot in vm["knowledge"]],
        Handles(vm["handles"]),
        vm["frozen_history_len"],
        vm,
    )


def _live(message: StoredMessage) -> Live:
    return restore_message(message["role"], message["body"], message["tool_calls"])


def _measured(rows: list[Row], measurements: Sequence[dict[str, Any]]) -> list[Row]:
    """Measurements of another number of rows are dropped whole, as items are (§6.4)."""
    if len(measurements) != len(rows):
        return rows
    return [row._replace(measurement=measured) for row, measured in zip(rows, measurements, strict=True)]
