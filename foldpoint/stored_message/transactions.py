"""History cut into transactions, which are shown or dropped as a whole (stored-message.md §9)."""

from collections.abc import Sequence
from itertools import pairwise

from foldpoint.stored_message.live import Live


class _Transaction:
    """What the messages of one transaction have done so far."""

    def __init__(self) -> None:
        self.open_calls: set[str] = set()
        self.has_assistant = False
        self.has_calls = False
        self.is_answered = False

    def ends_before(self, live: Live) -> bool:
        if self.open_calls:
            return False
        if live.role == "assistant":
            return self.has_assistant and not self._is_answer(live)
        return live.role in {"user", "tool"}

    def _is_answer(self, live: Live) -> bool:
        """The single answer that follows a finished batch of tools."""
        finished = self.has_calls and not self.open_calls and not self.is_answered
        return finished and live.role == "assistant" and not live.tool_calls

    def take(self, live: Live) -> None:
        self.is_answered = self.is_answered or self._is_answer(live)
        self.has_assistant = self.has_assistant or live.role == "assistant"
        self.has_calls = self.has_calls or bool(live.tool_calls)
        self.open_calls.update(call.id for call in live.tool_calls)
        self.open_calls.difference_update(part["call_id"] for part in live.results)


def transactions(history: Sequence[Live]) -> list[range]:
    """The places of each transaction, oldest first."""
    starts: list[int] = []
    transaction = _Transaction()
    for place, live in enumerate(history):
        if not starts or transaction.ends_before(live):
            starts.append(place)
            transaction = _Transaction()
        transaction.take(live)
    return [range(start, end) for start, end in pairwise([*starts, len(history)])]
