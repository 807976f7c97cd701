"""What a model is shown of a context (stored-message.md §9)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from foldpoint.stored_message.context import Context, Row
from foldpoint.stored_message.handles import Handles, preview
from foldpoint.stored_message.live import Live
from foldpoint.stored_message.transactions import transactions

RESUMED = Live("user", "[context resumed]", [])
#: Token counts that the kernel's tokenizer gives: no system text, the anchor turn, its own narration stub.
_NOTHING, _RESUMED_TOKENS, _STUB_TOKENS = 1, 5, 25
_STUB = "[the words before these calls are left out]"
#: Characters from which the text of an old assistant message with calls is left out.
_STUBBED_FROM = 40
_PROTECTED = 2


class Overflow(NamedTuple):
    """The fixed part (`fixed_context`) or the protected transactions (`protected_tail`) do not fit the window."""

    kind: str
    required_tokens: int
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Render:
    """`exact` says that `estimated_tokens` needed no tokenizer, so that the kernel's is the same."""

    system_stable: str
    system_knowledge: str
    turns: list[Live]
    turn_items: list[int]
    state_turn: Live | None
    frozen_prefix_len: int | None
    budget_overflow: Overflow | None
    estimated_tokens: int
    exact: bool

    @property
    def system_text(self) -> str:
        return "\n\n".join(text for text in (self.system_stable, self.system_knowledge) if text)

    def to_json(self) -> dict[str, Any]:
        return {
            "system_text": self.system_text,
            "system_stable": self.system_stable,
            "system_knowledge": self.system_knowledge,
            "turns": [turn.to_json() for turn in self.turns],
            "turn_items": self.turn_items,
            "state_turn": self.state_turn.to_json() if self.state_turn else None,
            "frozen_prefix_len": self.frozen_prefix_len,
            "budget_overflow": self.budget_overflow._asdict() if self.budget_overflow else None,
            "estimated_tokens": self.estimated_tokens,
        }


class _Shown(NamedTuple):
    """A message of history as it is shown. `exact`: the kernel counts it the same."""

    place: int
    live: Live
    tokens: int
    exact: bool


def render(context: Context, window: int) -> Render:
    """`window`: the tokens there are for input, reserves taken off.

    Where the kernel would count with its tokenizer, what the messages carry stands in. The task board and signals have
    no rendering on the page: the state turn holds staged knowledge only.
    """
    system_stable = _joined(row.live for row in context.system)
    system_knowledge = _joined(slot.live for slot in context.knowledge if not slot.staged)
    staged = _joined(slot.live for slot in context.knowledge if slot.staged)
    carried = context.partition_tokens
    counted = not (system_stable or system_knowledge or staged)
    fixed = _NOTHING if counted else max(carried["system"] + carried["knowledge"], _NOTHING)
    shown = _selected(context, max(window - fixed, 0))
    anchor = [RESUMED] if shown and shown[0].live.role in {"assistant", "tool"} else []
    needed = fixed + sum(message.tokens for message in shown) + _RESUMED_TOKENS * len(anchor)
    frozen = sum(message.place < context.frozen_history_len for message in shown)
    return Render(
        system_stable,
        system_knowledge,
        [*anchor, *(message.live for message in shown)],
        [*(0 for _ in anchor), *(context.history[message.place].item_id for message in shown)],
        Live("user", f"{staged}\n\nProceed.", []) if staged else None,
        len(anchor) + frozen if 0 < frozen < len(shown) else None,
        _overflow(fixed, needed, window),
        needed,
        counted and all(message.exact for message in shown),
    )


def _joined(messages: Iterable[Live]) -> str:
    """The plain-text bodies; others are passed over."""
    return "\n\n".join(live.text for live in messages if live.text is not None)


def _selected(context: Context, remaining: int) -> list[_Shown]:
    """The newest transactions that fit, and the last two in any case; one without tokens is never shown."""
    chosen: list[list[_Shown]] = []
    units = transactions([row.live for row in context.history])
    for age, unit in enumerate(reversed(units)):
        is_protected = age < _PROTECTED
        shown = [_shown(place, context.history[place], context.handles, is_protected) for place in unit]
        tokens = sum(message.tokens for message in shown)
        if tokens == 0:
            continue
        if tokens > remaining and not is_protected:
            break
        chosen.append(shown)
        remaining = max(remaining - tokens, 0)
    return [message for shown in reversed(chosen) for message in shown]


def _shown(place: int, row: Row, handles: Handles, is_protected: bool) -> _Shown:
    live = row.live
    if any(handles.hides(part["call_id"]) for part in live.results):
        return _Shown(place, _previewed(live, handles), row.measured, exact=False)
    if not is_protected and live.role == "assistant" and live.tool_calls and len(live.text or "") >= _STUBBED_FROM:
        return _Shown(place, live._replace(content=_STUB), _STUB_TOKENS, exact=True)
    counted = row.counted
    return _Shown(place, live, row.measured if counted is None else counted, exact=counted is not None)


def _previewed(live: Live, handles: Handles) -> Live:
    return live._replace(
        content=[
            {**part, "output": preview(part["output"], part["call_id"])}
            if part["type"] == "tool_result" and handles.hides(part["call_id"])
            else part
            for part in live.content
            if isinstance(part, dict)
        ]
    )


def _overflow(fixed: int, needed: int, window: int) -> Overflow | None:
    if fixed > window:
        return Overflow("fixed_context", fixed, window)
    return Overflow("protected_tail", needed, window) if needed > window else None
