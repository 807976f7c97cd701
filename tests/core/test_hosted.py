"""What a hosted writer may say, and the ops that the server makes of it (server.md §7, §11)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldpoint.canonical import Unreadable
from foldpoint.chain import verify_log
from foldpoint.fold import fold
from foldpoint.frontier import Covered
from foldpoint.hlc import U32_MAX, CounterExhausted, Hlc
from foldpoint.hosted import Draft, hosted_device, is_hosted, mint, read_drafts, read_outcome, read_writer, turn_draft
from foldpoint.projection import author_of
from foldpoint.relay import Chain
from foldpoint.surfaces import conversation
from foldpoint.transcript import turns

EPOCH = "0f3a9b2c4d5e6f708192a3b4c5d6e7f8"
DEVICE = hosted_device("web", EPOCH)
TURN = {"conversation_id": "c", "role": "user", "content": "hello"}
INTENT = {"agent_id": "ada", "run_id": "r", "epoch": 1, "status": "pending"}


def test_the_chain_of_a_writer_is_named_by_it_and_the_generation() -> None:
    assert DEVICE == "hosted-web-0f3a9b2c"
    assert is_hosted(DEVICE)
    assert author_of(DEVICE) == "web"


@pytest.mark.parametrize("name", ["web", "A_b-9", "x" * 64])
def test_a_writers_name_is_a_slug(name: str) -> None:
    assert read_writer(name) == name


@pytest.mark.parametrize("name", ["", "x" * 65, "a b", "é", "a/b", 7, None, ["web"]])
def test_another_name_is_refused(name: Any) -> None:
    with pytest.raises(Unreadable) as refused:
        read_writer(name)
    assert refused.value.path == "writer"


def test_drafts_are_read_with_their_surface_and_scope() -> None:
    assert read_drafts(
        [
            {"surface": "knowledge", "payload": {"id": "a"}},
            {"surface": {"registry": {"kind": "k"}}, "payload": 1, "scope": {"shared": {"org": "acme"}}},
        ]
    ) == [Draft("personal", "knowledge", {"id": "a"}), Draft("shared:acme", "registry:k", 1)]


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("ops", "path"),
    [
        (None, "ops"), ([], "ops"), ({}, "ops"), ([1], "ops[0]"), ([{"surface": "knowledge"}], "ops[0]"),
        ([{"payload": 1}], "ops[0].surface"), ([{"surface": "novel", "payload": 1}], "ops[0].surface"),
        ([{"surface": "run", "payload": 1}, {"surface": "run", "payload": 1, "scope": "ours"}], "ops[1].scope"),
        ([{"surface": "run", "payload": nested(121)}], "ops[0].payload"),
    ],
)  # fmt: skip
def test_a_draft_that_no_op_can_be_made_of_is_refused_with_its_place(ops: Any, path: str) -> None:
    with pytest.raises(Unreadable) as refused:
        read_drafts(ops)
    assert refused.value.path == path


def test_a_turn_is_what_a_transcript_shows() -> None:
    fields = {
        "conversation_id": "c", "role": "tool_result", "content": "", "tool_use_id": "t1", "provenance": "external",
        "ok": False, "timestamp": 7,
    }  # fmt: skip
    calls = [{"id": "t1", "name": "look", "arguments": {"x": 1}}]
    drafts = [turn_draft({**TURN, "role": "assistant", "content": None, "tool_calls": calls}, 5), turn_draft(fields, 6)]
    ops = mint(Chain(DEVICE), drafts, [], 1)
    said = turns(fold(ops).log_entries(conversation.SURFACE.name))
    assert [(t.role, t.content, t.tool_calls, t.tool_use_id, t.external, t.ok, t.timestamp) for t in said] == [
        ("assistant", "", calls, None, False, None, 5), ("tool", "", [], "t1", True, False, 7),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"conversation_id": " \n"}, "conversation_id"), ({"conversation_id": 3}, "conversation_id"),
        ({"role": "system"}, "role"), ({"role": None}, "role"), ({"role": ["user"]}, "role"),
        ({"content": ""}, "content"), ({"content": 3}, "content"), ({"timestamp": -1}, "timestamp"),
        ({"timestamp": 1.0}, "timestamp"), ({"tool_calls": {"name": "x"}}, "tool_calls"),
        ({"tool_calls": 0}, "tool_calls"), ({"tool_calls": ""}, "tool_calls"), ({"tool_calls": {}}, "tool_calls"),
        ({"tool_calls": [{"name": "x", "arguments": "{}"}]}, "tool_calls[0]"),
        ({"tool_calls": [{"id": 1, "name": "x", "arguments": {}}]}, "tool_calls[0]"),
        ({"tool_use_id": 1}, "tool_use_id"), ({"provenance": "elsewhere"}, "provenance"), ({"ok": "yes"}, "ok"),
    ],
)  # fmt: skip
def test_a_turn_that_a_transcript_could_not_show_is_refused(changed: dict[str, Any], path: str) -> None:
    with pytest.raises(Unreadable) as refused:
        turn_draft({**TURN, **changed}, 5)
    assert refused.value.path == path


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"agent_id": ""}, "agent_id"), ({"agent_id": None}, "agent_id"), ({"run_id": ""}, "run_id"),
        ({"epoch": 0}, "epoch"), ({"epoch": "1"}, "epoch"), ({"epoch": 1.0}, "epoch"), ({"epoch": True}, "epoch"),
        ({"epoch": 2**64}, "epoch"), ({"status": "done"}, "status"), ({"status": None}, "status"),
    ],
)  # fmt: skip
def test_an_outcome_that_the_fold_could_not_place_is_refused(changed: dict[str, Any], path: str) -> None:
    with pytest.raises(Unreadable) as refused:
        read_outcome({**INTENT, **changed})
    assert refused.value.path == path


def test_an_outcome_is_an_intent() -> None:
    (op,) = mint(Chain(DEVICE), [read_outcome({**INTENT, "status": "committed"}).draft()], [], 1)
    record = fold([op]).committed_run("ada", "r")
    assert record is not None
    assert record.op_id == op.op_id


stamps = st.builds(Hlc, st.integers(0, 2**40), st.integers(0, U32_MAX), st.sampled_from(["mac", DEVICE, "zed"]))


@given(st.lists(stamps, max_size=4), st.integers(0, 2**40), st.integers(1, 5))
def test_minted_ops_continue_the_chain_above_everything_witnessed(seen: list[Hlc], now_ms: int, count: int) -> None:
    first = mint(Chain(DEVICE), [Draft("personal", "knowledge", n) for n in range(count)], seen, now_ms)
    head = Covered(first[-1].seq, first[-1].hlc, first[-1].op_id)
    more = mint(Chain(DEVICE, head), [Draft("personal", "run", n) for n in range(count)], [*seen, head.hlc], now_ms)
    verify_log([*first, *more])
    assert all(op.hlc[:2] > stamp[:2] for op in first for stamp in seen)
    assert first[0].hlc.wall_ms >= now_ms


def test_a_full_counter_takes_the_next_millisecond_and_the_last_stamp_is_the_last() -> None:
    drafts = [Draft("personal", "run", n) for n in range(3)]
    ops = mint(Chain(DEVICE), drafts, [Hlc(50, U32_MAX - 1, "mac")], 7)
    assert [op.hlc[:2] for op in ops] == [(50, U32_MAX), (51, 0), (51, 1)]
    with pytest.raises(CounterExhausted):
        mint(Chain(DEVICE), drafts, [Hlc(2**63 - 1, U32_MAX, "mac")], 7)
