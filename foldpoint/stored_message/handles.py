"""Handles: where the bodies of tool results live (stored-message.md §5, §6.6)."""

from collections.abc import Iterable
from typing import Any

from foldpoint.stored_message.refusals import Incompatible

#: A handle in its normal form.
Handle = dict[str, Any]

_KINDS = ("tool_result", "memory_page", "knowledge_entry", "sub_agent_join")
#: What a handle of each residency must carry, and alone does.
_LOCATOR = {
    "resident": (),
    "collapsed": (),
    "external": ("payload_ref", "digest", "original_size"),
    "paged_out": ("payload_ref", "digest"),
}
#: Bytes of a body that a collapsed or paged-out result still shows (§9).
_PREVIEW_BYTES = 160


class Handles:
    """The handles of a context, by id."""

    def __init__(self, handles: Iterable[Handle]) -> None:
        """Raises Incompatible for an unknown kind or residency, or a body that nobody could load."""
        self._by_id = {handle["handle_id"]: _restored(handle) for handle in handles}

    def to_json(self) -> list[Handle]:
        return list(self._by_id.values())

    def of(self, call_id: str) -> Handle | None:
        """The handle of the result of a call."""
        return next((handle for handle in self._by_id.values() if handle["source"] == call_id), None)

    def away(self, call_id: str) -> Handle | None:
        """The handle of a result whose body lives with the host."""
        handle = self.of(call_id)
        return handle if handle and handle["digest"] is not None else None

    def hides(self, call_id: str) -> bool:
        """Whether a result is shown as a preview only."""
        handle = self.of(call_id)
        return handle is not None and handle["residency"] in {"collapsed", "paged_out"}


def _restored(handle: Handle) -> Handle:
    kind, residency = handle["kind"], handle["residency"]
    if kind not in _KINDS:
        raise Incompatible(f"unknown handle kind {kind!r}", "handles")
    if residency not in _LOCATOR:
        raise Incompatible(f"unknown residency {residency!r}", "handles")
    for name in _LOCATOR[residency]:
        if handle[name] is None:
            raise Incompatible(f"handle {handle['handle_id']} is {residency} and has no {name}", "handles")
    lost = {name: None for name in _LOCATOR["external"] if name not in _LOCATOR[residency]}
    return {**handle, **lost}


def preview(output: str, call_id: str) -> str:
    """The first bytes of a result with the notice how to read it whole; a preview stays as it is."""
    retrieval = f'Call the read_result tool with call_id "{call_id}" to re-read the full result.]'
    last = output.rsplit("\n", 1)[-1]
    if last.startswith("[Output truncated:") and last.endswith(retrieval):
        return output
    kept = cut(output, _PREVIEW_BYTES)
    dropped = len(output.encode()) - len(kept.encode())
    return f"{kept}…\n[Output truncated: {dropped} bytes omitted. {retrieval}"


def cut(text: str, limit: int) -> str:
    """The longest beginning of a text that has at most `limit` bytes."""
    return text.encode()[:limit].decode(errors="ignore")
