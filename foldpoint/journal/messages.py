"""Messages on the provider and transcript wire, which keeps less than the journal does (journal.md §4)."""

from typing import Any

from foldpoint.canonical import Json, canonical
from foldpoint.journal.ops import CALLS, CONTENT_PARTS, ROLE
from foldpoint.journal.shapes import read_shape


def transcript_message(message: dict[str, Any]) -> dict[str, Any]:
    """A message of the state on the wire: parts instead of text beside them, and no metadata."""
    content = message.get("content_parts", message.get("content"))
    wire = {"role": message["role"]} if content is None else {"role": message["role"], "content": content}
    return wire | {field.name: message[field.name] for field in CALLS if field.name in message}


def read_transcript_message(value: Json) -> dict[str, Any]:
    """A message of the state from the wire; content that is neither text nor parts is its text. Raises Unreadable."""
    message = read_shape((ROLE, *CALLS), value)
    content = value.get("content") if isinstance(value, dict) else None
    if isinstance(content, list):
        message[CONTENT_PARTS.name] = content
    elif content is not None:
        message["content"] = content if isinstance(content, str) else canonical(content).decode()
    return message
