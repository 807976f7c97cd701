"""The messages to send to a provider to go on with a conversation (car-sync.md §7.5–7.6)."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, NamedTuple

from msgspec.structs import replace

from foldpoint.transcript import Turn


class Repair(StrEnum):
    """What repair did to a turn so that a provider accepts the messages."""

    #: A tool result that answers no open call is left out.
    ORPHAN_DROPPED = "orphan_result_dropped"
    #: A turn's text went into the message before it, of the same role.
    MERGED = "merged"
    #: An assistant's calls that no result follows are taken off it.
    CALLS_CLEARED = "unanswered_calls_cleared"


class Resumed(NamedTuple):
    """Messages in the crate's form, and one report entry per repaired turn in transcript order."""

    messages: list[dict[str, Any]]
    repairs: list[dict[str, Any]]


def resume(turns: Iterable[Turn]) -> Resumed:
    """Repair a transcript and turn it into messages."""
    repairing = Repairing()
    messages = [message for turn in turns if (message := repairing.take(turn))]
    if (last := repairing.end()) is not None:
        messages.append(last)
    return Resumed(messages, repairing.repairs())


class Repairing:
    """Repairs a transcript turn by turn; it holds the turns of one message, and the report."""

    def __init__(self) -> None:
        self._group: list[Turn] = []
        #: Whether tool results may answer calls that came before.
        self._tool_open = False
        self._place = self._began = -1
        self._repairs: list[tuple[int, dict[str, Any]]] = []

    def take(self, turn: Turn) -> dict[str, Any] | None:
        """Take the next turn; the message that is complete with it, if one is."""
        self._place += 1
        if turn.role == "tool":
            if self._tool_open:
                return self._begin(turn)
            self._report(self._place, Repair.ORPHAN_DROPPED, turn, tool_use_id=turn.tool_use_id)
            return None
        merges = bool(self._group) and self._group[0].role == turn.role
        self._tool_open = turn.role == "assistant" and ((merges and self._tool_open) or bool(turn.tool_calls))
        if not merges:
            return self._begin(turn)
        self._report(self._place, Repair.MERGED, turn, into=self._group[0].record.op_id)
        self._group.append(turn)
        return None

    def end(self) -> dict[str, Any] | None:
        """The last message, after the last turn."""
        return self._message(None) if self._group else None

    def repairs(self) -> list[dict[str, Any]]:
        """One entry per repaired turn in transcript order, of the turns whose messages are complete."""
        return [report for _, report in sorted(self._repairs, key=lambda repair: repair[0])]

    def _begin(self, turn: Turn) -> dict[str, Any] | None:
        message = self._message(turn) if self._group else None
        self._group, self._began = [turn], self._place
        return message

    def _message(self, after: Turn | None) -> dict[str, Any]:
        """The message of the group, now that the turn after it is known."""
        turn = _merged(self._group)
        if turn.role == "assistant" and turn.tool_calls and (after is None or after.role != "tool"):
            self._report(self._began, Repair.CALLS_CLEARED, turn, calls=len(turn.tool_calls))
            turn = replace(turn, tool_calls=[])
        return _message(turn)

    def _report(self, place: int, repair: Repair, turn: Turn, **more: Any) -> None:
        self._repairs.append((place, {"repair": repair.value, "op_id": turn.record.op_id, **more}))


def _merged(group: list[Turn]) -> Turn:
    """One turn with the texts of all and, for an assistant, their calls; all else is the first one's."""
    first = group[0]
    if len(group) == 1:
        return first
    calls = [call for turn in group for call in turn.tool_calls] if first.role == "assistant" else first.tool_calls
    return replace(first, content="\n\n".join(turn.content for turn in group if turn.content), tool_calls=calls)


def _message(turn: Turn) -> dict[str, Any]:
    if turn.role == "user":
        return {"role": "user", "content": turn.content}
    if turn.role == "assistant":
        return {
            "role": "assistant",
            "content": turn.content,
            "tool_calls": turn.tool_calls,
            "local_last_resort": False,
        }
    message: dict[str, Any] = {
        "role": "tool_result",
        "tool_use_id": turn.tool_use_id or "",
        "content": turn.content,
    }
    if turn.external:
        message["provenance"] = "external"
    if turn.ok is not None:
        message["ok"] = turn.ok
    return message
