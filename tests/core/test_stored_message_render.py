"""What a model is shown of a context, and what a provider accepts of it (stored-message.md §9, §11)."""

from typing import Any

import pytest

from foldpoint.stored_message.context import context_of
from foldpoint.stored_message.message import StoredMessage
from foldpoint.stored_message.pairing import paired
from foldpoint.stored_message.render import render
from foldpoint.stored_message.transactions import transactions
from tests.core.stored_messages import message, result, turn

NARRATION = "I am going to look this up for you, wait. "


def shown(messages: list[StoredMessage], window: int = 1_000) -> list[Any]:
    return [turn.content for turn in render(context_of(messages), window).turns]


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ([("user",), ("assistant",), ("user",)], [2, 1]),
        ([("assistant",), ("assistant",)], [1, 1]),
        ([("assistant", "c"), ("tool", "c"), ("assistant",), ("assistant",)], [3, 1]),
        ([("assistant", "c"), ("tool", "c"), ("assistant", "d"), ("tool", "d")], [2, 2]),
        ([("assistant", "c"), ("user",), ("assistant",), ("tool", "c"), ("user",)], [4, 1]),
        ([("tool", "c"), ("tool", "d")], [1, 1]),
        ([("user",), ("system",), ("assistant",), ("system",)], [4]),
        ([("user", "c"), ("user",), ("tool", "c"), ("tool", "c")], [3, 1]),
    ],
)
def test_history_is_cut_into_transactions(history: list[tuple[str, ...]], expected: list[int]) -> None:
    messages = [result(*calls) if role == "tool" else message(role, calls=tuple(calls)) for role, *calls in history]
    units = transactions([row.live for row in context_of(messages).history])
    assert [len(unit) for unit in units] == expected


def narrated(role: str, words: str) -> str | None:
    """How an old message with a call is shown."""
    messages = [message(role, words, 90, ("c",)), result("c"), message("user"), message("user")]
    turns = render(context_of(messages), 1_000).turns
    return next(turn.text for turn in turns if turn.tool_calls)


def test_old_narration_before_calls_is_stubbed_and_recent_narration_is_not() -> None:
    assert narrated("assistant", "é" * 40) != "é" * 40
    assert narrated("assistant", "é" * 39) == "é" * 39
    assert narrated("user", "é" * 40) == "é" * 40
    old = [message("user"), message("assistant", NARRATION, 90, ("c",)), result("c")]
    recent = [message("user"), message("assistant", NARRATION, 90, ("d",)), result("d"), message("user")]
    assert [NARRATION in shown([*old, *recent])[at] for at in (1, 4)] == [False, True]
    plain = [message("user"), message("assistant", NARRATION, 90), message("user"), message("user")]
    assert shown(plain)[1] == NARRATION
    assert render(context_of([*old, *recent]), 1_000).estimated_tokens == 1 + (1 + 25 + 1) + (1 + 90 + 1) + 1


def test_an_empty_system_text_leaves_its_separator_and_another_body_does_not() -> None:
    parts = {"form": "structured", "durable_content": {"blocks": []}}
    system = [message("system", body, partition="system") for body in ("a", "", parts, "b")]
    assert render(context_of(system), 100).system_text == "a\n\n\n\nb"


def test_the_first_transaction_that_does_not_fit_ends_the_walk() -> None:
    old, big, mid = message("user", "old", 1), message("user", "big", 50), message("user", "mid", 5)
    recent = [message("user", "y", 5), message("user", "z", 5)]
    assert shown([old, big, mid, *recent], 40) == ["mid", "y", "z"]
    assert shown([old, big, mid, *recent], 66) == ["big", "mid", "y", "z"]
    assert shown([old, big, mid, *recent], 67) == ["old", "big", "mid", "y", "z"]


def test_a_fixed_part_above_the_window_is_an_overflow_of_its_own() -> None:
    rules = message("system", "rules", 30, partition="system")
    overflow = render(context_of([rules, message("user")]), 20).budget_overflow
    assert overflow == ("fixed_context", 30, 20)


def test_unpaired_results_and_calls_do_not_reach_a_provider() -> None:
    question, answer = turn("user"), turn("assistant")
    call, both = turn("assistant", calls=("c",)), turn("assistant", calls=("c", "d"))
    c, d, cd = turn("tool", result("c")), turn("tool", result("d")), turn("tool", result("c", "d"))
    assert paired([question, call, c, answer]) == [question, call, c, answer]
    assert paired([question, both, d, c]) == [question, both, d, c]
    assert paired([c, question]) == [question]
    assert paired([question, call, d]) == [question, answer]
    assert paired([question, call, question, c]) == [question, answer, question]
    assert paired([question, both, c, answer]) == [question, call, c, answer]
    assert paired([question, call, cd, c]) == [question, call, c]
    assert paired([question, turn("assistant", "", ("c",))]) == [question]
    assert paired([question, turn("tool", "words")]) == [question]
