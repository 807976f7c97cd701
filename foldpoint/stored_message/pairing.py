"""Turns as a provider accepts them: every call with its result, every result with its call (stored-message.md §11)."""

from collections import Counter
from collections.abc import Iterable

from foldpoint.canonical import Json
from foldpoint.stored_message.live import Live


def paired(turns: Iterable[Live]) -> list[Live]:
    """The turns without results that answer no open call and without calls that no result follows.

    A call is open from its message to the next one that carries no result. What has nothing left to say is dropped.
    """
    kept: list[Live] = []
    batch: list[Live] = []
    for turn in turns:
        if turn.role != "tool" and not turn.results:
            kept += _closed(batch)
            batch = [turn]
        elif batch:
            batch.append(turn)
    return kept + _closed(batch)


def left_out(turns: Iterable[Live], kept: Iterable[Live]) -> dict[str, Json]:
    """What `paired` left out, as `{"calls": [call id…], "results": […], "turns": how many}`.

    A turn is left out if nothing of it is left to say.
    """
    before, after = list(turns), list(kept)
    return {
        "turns": len(before) - len(after),
        "calls": _without(_calls(before), _calls(after)),
        "results": _without(_results(before), _results(after)),
    }


def _calls(turns: Iterable[Live]) -> list[str]:
    return [call.id for turn in turns for call in turn.tool_calls]


def _results(turns: Iterable[Live]) -> list[str]:
    return [part["call_id"] for turn in turns for part in turn.results]


def _without(names: Iterable[str], kept: Iterable[str]) -> list[Json]:
    """The names that are left once each of the kept ones is taken out, from the first on."""
    left = Counter(names)
    left.subtract(kept)
    return list(left.elements())


def _closed(batch: list[Live]) -> list[Live]:
    """A message and the results that follow it, which answer its calls only."""
    if not batch:
        return []
    caller, *answers = batch
    unanswered = {call.id for call in caller.tool_calls}
    matched = []
    for answer in answers:
        parts = []
        for part in answer.results:
            if part["call_id"] in unanswered:
                unanswered.remove(part["call_id"])
                parts.append(part)
        if parts:
            matched.append(answer._replace(content=parts))
    calls = [call for call in caller.tool_calls if call.id not in unanswered]
    return [*([caller._replace(tool_calls=calls)] if calls or caller.content else []), *matched]
