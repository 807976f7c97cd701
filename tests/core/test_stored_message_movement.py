"""How messages move within a context (stored-message.md §8)."""

from dataclasses import replace

from foldpoint.stored_message.context import Context, context_of, restore_context
from foldpoint.stored_message.context_vm import decode_context_vm, empty_context_vm
from foldpoint.stored_message.live import Live
from foldpoint.stored_message.movement import (
    admit,
    archive,
    cross_boundary,
    excerpt,
    hold,
    release,
    renew,
    roll_back,
    summarise,
)
from tests.core.stored_messages import message, result, turn

CALL = message("assistant", "go", 2, ("c", "d"))
NOTE = turn("user", "later")


def words(context: Context) -> list[str]:
    return [str(row.live.text) for row in context.history]


def talk() -> Context:
    """Three transactions, of 3, 4 and 5 tokens."""
    context = context_of(
        [
            message("system", "rules", 7, partition="system"),
            message("user", "a", 1),
            message("assistant", "b", 2),
            message("user", "c", 4),
            message("user", "d", 2),
            message("assistant", "e", 3),
        ]
    )
    return replace(context, frozen_history_len=2)


def test_a_held_message_waits_for_the_last_result() -> None:
    waiting = hold(context_of([CALL]), NOTE, 4)
    assert (len(waiting.held), waiting.partition_tokens["history"]) == (1, 2)
    half = admit(waiting, turn("tool", result("c")), 1)
    assert len(half.held) == 1
    whole = admit(half, turn("tool", result("d")), 1)
    assert not whole.held
    assert [row.live for row in whole.history][-1] == NOTE
    assert whole.partition_tokens["history"] == 2 + 1 + 1 + 4


def test_nothing_is_held_when_no_call_is_open() -> None:
    assert words(hold(context_of([message("user", "q")]), NOTE, 1)) == ["q", "later"]
    answered = context_of([CALL, result("c", "d")])
    assert not hold(answered, NOTE, 1).held
    spoken = context_of([CALL, message("user", "q")])
    assert not hold(spoken, NOTE, 1).held
    assert not hold(Context(), NOTE, 1).held


def test_a_model_call_releases_what_is_held() -> None:
    waiting = hold(context_of([CALL]), NOTE, 4)
    assert words(release(waiting)) == ["go", "later"]
    assert not release(waiting).held
    spoken = admit(waiting, turn("user", "q"), 1)
    assert len(spoken.held) == 1


def test_compaction_archives_whole_transactions() -> None:
    kept = archive(talk(), 1)
    assert words(kept) == ["c", "d", "e"]
    assert kept.partition_tokens == {"system": 7, "knowledge": 0, "history": 9}
    assert kept.frozen_history_len == 3
    assert words(archive(talk(), 9)) == []


def test_renewal_keeps_the_newest_transactions_within_the_allowance() -> None:
    assert words(renew(talk(), 4)) == []
    assert words(renew(talk(), 8)) == ["d", "e"]
    assert words(renew(talk(), 9)) == ["c", "d", "e"]
    assert words(renew(talk(), 12)) == ["a", "b", "c", "d", "e"]
    assert renew(talk(), 4).partition_tokens["system"] == 7


def test_a_rollback_cuts_the_end() -> None:
    cut = roll_back(talk(), 1)
    assert words(cut) == ["a"]
    assert (cut.frozen_history_len, cut.partition_tokens["history"]) == (1, 1)
    assert roll_back(talk(), 4).frozen_history_len == 2


def test_an_excerpt_takes_the_place_and_the_tokens_of_the_message() -> None:
    item = {"id": 7, "origin": "user", "injected_turn": 0}
    talked = talk()
    talked = replace(talked, history=[row._replace(item=item) for row in talked.history])
    shorter = excerpt(talked, 2, Live("user", "…", []), 1)
    assert words(shorter) == ["a", "b", "…", "d", "e"]
    assert shorter.partition_tokens["history"] == 12 - 3
    assert shorter.history[2].item == item


def test_a_summary_heads_history() -> None:
    headed = summarise(archive(talk(), 2), Live("assistant", "before", []), 6)
    assert words(headed) == ["before", "d", "e"]
    assert headed.partition_tokens["history"] == 5 + 6


def test_knowledge_moves_at_a_boundary_only() -> None:
    slot = {"role": "system", "tokens": 4, "pinned": False, "evict_at_boundary": False}
    body = {"form": "inline", "text": "old"}
    pending = message("system", "new", 9)
    vm = decode_context_vm(
        {
            **empty_context_vm(),
            "knowledge": [
                {**slot, "key": "a", "body": body, "staged": True},
                {**slot, "key": "b", "body": body, "pending": pending},
                {**slot, "key": "c", "body": body, "evict_at_boundary": True},
            ],
        }
    )
    before = restore_context(vm)
    after = cross_boundary(before)
    assert before.partition_tokens["knowledge"] == 12
    assert [(slot.fields["key"], slot.staged, slot.live.text) for slot in after.knowledge] == [
        ("a", False, "old"),
        ("b", False, "new"),
    ]
    assert after.partition_tokens["knowledge"] == 13
    assert "pending" not in after.knowledge[1].to_json(after.handles)
