"""The identity of what the projections carry in registries (server.md §8)."""

from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256

from foldpoint.canonical import Json, canonical
from foldpoint.hosted import writer_of


class BelowSnapshot(Exception):
    """What was folded up to a snapshot cannot tell what a record gives: fold it with the records below."""


def payload_id(author: str, payload: Mapping[str, Json]) -> str:
    """The `id` a payload must carry: SHA-256 of the canonical JSON of `[author, payload without "id"]`, in hex."""
    content = {name: value for name, value in payload.items() if name != "id"}
    return sha256(canonical([author, content])).hexdigest()


@lru_cache(4096)
def author_of(device_id: str) -> str:
    """Who answers for a chain: its device or, if the chain is hosted, the writer it was written for."""
    return writer_of(device_id) or device_id


def recomputes(device_id: str, payload: Mapping[str, Json]) -> bool:
    """Whether a payload on this device's chain carries the id that its content gives."""
    return payload.get("id") == payload_id(author_of(device_id), payload)


def source_of(number: int, line: str) -> Json:
    """What tells equal lines of a file apart, and is the same at a second import."""
    return {"line": number, "text": line}
