"""The messages to send to a provider to go on with a conversation (car-sync.md §7.5–7.6)."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, NamedTuple

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
    turns = list(turns)
    groups, repairs = _alternate(turns)
    kept = [_merged(group) for group in groups]
    for i, turn in enumerate(kept):
        unanswered = turn.role == "assistant" and turn.tool_calls
        if unanswered and (i + 1 == len(kept) or kept[i + 1].role != "tool"):
            repairs.append(_report(Repair.CALLS_CLEARED, turn, calls=len(turn.tool_calls)))
            kept[i] = turn._replace(tool_calls=[])
    place = {turn.op_id: i for i, turn in enumerate(turns)}
    repairs.sort(key=lambda repair: place[repair["op_id"]])
    return Resumed([_message(turn) for turn in kept], repairs)


def _alternate(turns: list[Turn]) -> tuple[list[list[Turn]], list[dict[str, Any]]]:
    """The turns of each message, and what had to be merged or left out for it."""
    groups: list[list[Turn]] = []
    repairs: list[dict[str, Any]] = []
    tool_open = False
    for turn in turns:
        if turn.role == "tool":
            if tool_open:
                groups.append([turn])
            else:
                repairs.append(_report(Repair.ORPHAN_DROPPED, turn, tool_use_id=turn.tool_use_id))
        elif groups and groups[-1][0].role == turn.role:
            repairs.append(_report(Repair.MERGED, turn, into=groups[-1][0].op_id))
            groups[-1].append(turn)
            tool_open = turn.role == "assistant" and (tool_open or bool(turn.tool_calls))
        else:
            groups.append([turn])
            tool_open = turn.role == "assistant" and bool(turn.tool_calls)
    return groups, repairs


def _merged(group: list[Turn]) -> Turn:
    """One turn with the texts of all and, for an assistant, their calls; all else is the first one's."""
    first = group[0]
    calls = [call for turn in group for call in turn.tool_calls] if first.role == "assistant" else first.tool_calls
    return first._replace(content="\n\n".join(turn.content for turn in group if turn.content), tool_calls=calls)


def _report(repair: Repair, turn: Turn, **more: Any) -> dict[str, Any]:
    return {"repair": repair.value, "op_id": turn.op_id, **more}


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
