"""Turns of conversations (car-sync.md §7.1): every payload projects to a turn, with a fallback per field."""

from typing import Any

from foldpoint.canonical import Json
from foldpoint.surfaces.surface import Surface, Tier

SURFACE = Surface("conversation", 3, Tier.GROW_ONLY, event_stream=True)


def is_tombstone(payload: Json) -> bool:
    return isinstance(payload, dict) and payload.get("tombstone") is True


def conversation_id(payload: Json) -> str:
    """The conversation a record belongs to; the default conversation is the empty string."""
    name = payload.get("conversation_id") if isinstance(payload, dict) else None
    return name if isinstance(name, str) else ""


def role(payload: dict[str, Any]) -> str:
    """`user`, `assistant` or `tool`. A present `role` decides even if it is not a string."""
    name = payload["role"] if "role" in payload else payload.get("speaker")
    if name == "assistant":
        return "assistant"
    return "tool" if name in ("tool", "tool_result") else "user"


def content(payload: dict[str, Any]) -> str:
    """The turn's text. A present `content` decides even if it is not a string."""
    value = payload["content"] if "content" in payload else payload.get("text")
    return value if isinstance(value, str) else ""
