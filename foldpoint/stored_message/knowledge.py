"""Knowledge slots of a context (stored-message.md §5, §6.5)."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from foldpoint.canonical import Json
from foldpoint.stored_message.handles import Handles
from foldpoint.stored_message.live import Live, restore_message
from foldpoint.stored_message.writing import write_body, write_calls, write_message

#: The origin that the beginning of a key gives; every other key is reference material.
_ORIGINS = {"memory:": "memory_recall", "skill:": "skill", "blackboard:": "blackboard"}
#: How long knowledge of an origin stays, if not for good.
_LEASES: dict[str, Json] = {"memory_recall": {"turns": 8}, "skill": {"until": "skill_deactivated"}}


class Slot(NamedTuple):
    """One resident or staged entry. `pending` is its staged replacement, with its tokens."""

    live: Live
    tokens: int
    pending: tuple[Live, int] | None
    fields: Mapping[str, Any]

    @property
    def staged(self) -> bool:
        staged: bool = self.fields["staged"]
        return staged

    def to_json(self, handles: Handles) -> dict[str, Any]:
        slot = {
            **self.fields,
            "role": self.live.role,
            "body": write_body(self.live, handles),
            "tool_calls": write_calls(self.live.tool_calls),
            "tokens": self.tokens,
        }
        if self.pending:
            slot["pending"] = write_message(self.pending[0], "system", self.pending[1], handles)
        return slot


def restore_slot(slot: Mapping[str, Any]) -> Slot:
    """Raises Incompatible."""
    pending = slot.get("pending")
    fields = {name: value for name, value in slot.items() if name not in {"pending", "leaving"}}
    fields["origin"] = slot.get("origin", _origin(slot["key"]))
    fields["lease"] = slot.get("lease", _lease(fields["origin"], slot["pinned"]))
    if slot["evict_at_boundary"]:
        fields["leaving"] = slot.get("leaving", "removed")
    return Slot(
        restore_message(slot["role"], slot["body"], slot["tool_calls"]),
        slot["tokens"],
        pending and (restore_message(pending["role"], pending["body"], pending["tool_calls"]), pending["tokens"]),
        fields,
    )


def _origin(key: str | None) -> str:
    return next((origin for start, origin in _ORIGINS.items() if key and key.startswith(start)), "reference")


def _lease(origin: str, pinned: bool) -> Json:
    if pinned and origin != "skill":
        return "permanent"
    return _LEASES.get(origin, "permanent")
