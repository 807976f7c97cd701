"""Checkpoints, kernel runs and merged sessions of stored messages against the original kernel's answers."""

from itertools import pairwise
from typing import Any

import pytest

from foldpoint.canonical import canonical
from foldpoint.stored_message.checkpoint import (
    ack_token,
    assemble,
    blank_checkpoint,
    decode_checkpoint,
    read_checkpoint,
    restore_checkpoint,
    session_checkpoint,
)
from foldpoint.stored_message.context import Context, context_of, restore_context
from foldpoint.stored_message.context_vm import decode_context_vm, empty_context_vm
from foldpoint.stored_message.live import restore_message
from foldpoint.stored_message.movement import admit
from foldpoint.stored_message.ops import read_op
from foldpoint.stored_message.refusals import Refused
from foldpoint.stored_message.render import render
from foldpoint.stored_message.session import fold, read_snapshot
from tests.fixtures.stored_message_vectors import (
    WINDOW,
    edited,
    golden,
    needs_tokenizer,
    record_of,
    text,
    vector_file,
)

DIGESTS = ("state_digest", "tail_digest", "checkpoint_digest")


@golden("checkpoint-header.json")
def test_a_checkpoint_verifies_or_is_refused_as_by_the_kernel(case: Any) -> None:
    base = vector_file("checkpoint-header.json")["cases"][0]["document"]
    document = canonical(edited(base, case["edits"]))
    if not case["ok"]:
        with pytest.raises(Refused) as refused:
            read_checkpoint(document)
        assert refused.value.code == case["code"]
        return
    checkpoint = read_checkpoint(document)
    restore_checkpoint(checkpoint)
    assert text(checkpoint) == text(base)


def test_a_checkpoint_is_assembled_with_the_digests_of_the_kernel() -> None:
    case = vector_file("checkpoint-header.json")["cases"][0]
    draft = {name: value for name, value in case["document"].items() if name not in DIGESTS}
    checkpoint = assemble(draft)
    assert text(checkpoint) == text(case["document"])
    assert {name: checkpoint[name] for name in DIGESTS} == {name: case[name] for name in DIGESTS}
    assert ack_token(checkpoint) == case["ack_token"]


def step_vm(step: Any) -> dict[str, Any]:
    """The context of a kernel at one step of its run."""
    names = ("handles", "held_history", "history_items", "history_len", "knowledge", "messages", "partition_tokens")
    return decode_context_vm({**empty_context_vm(), **{name: step[name] for name in names}})


@golden("session-runs.json")
def test_the_context_of_every_step_of_a_run_is_restored(case: Any) -> None:
    for step in case["steps"]:
        vm = step_vm(step)
        context = restore_context(vm)
        written = context.to_vm()
        compared = {**vm, **{f"{name}_measurements": written[f"{name}_measurements"] for name in ("system", "history")}}
        assert text(written) == text(compared), step["after"]
        assert step["restores"]
        restore_checkpoint(decode_checkpoint(blank_checkpoint(case["name"], written)))


@golden("session-runs.json")
def test_a_run_moves_from_step_to_step_by_admitting_messages(case: Any) -> None:
    for before, after in pairwise(case["steps"]):
        context: Context = restore_context(step_vm(before))
        for message in after["messages"][len(before["messages"]) :]:
            live = restore_message(message["role"], message["body"], message["tool_calls"])
            context = admit(context, live, message["tokens"])
        assert len(context.history) == after["history_len"]
        totals, expected = context.partition_tokens, after["partition_tokens"]
        assert [totals["system"], totals["history"]] == [expected["system"], expected["history"]]


@golden("server-context.json")
def test_ops_of_several_devices_merge_to_one_context(case: Any) -> None:
    expected, records = case["expect"], [record_of(op) for op in case["ops"]]
    session = fold(records)
    answer = session.to_json()
    assert text(answer["messages"]) == text(expected["messages"])
    assert text(answer["partition_tokens"]) == text(expected["partition_tokens"])
    assert answer["history_len"] == sum(message["partition"] == "history" for message in expected["messages"])
    assert session.message_ids() == expected["order"]
    statuses = {record.op_id: session.status(op) for record in records if (op := read_op(record))}
    assert text(statuses) == text(expected["statuses"])
    assert read_snapshot(session.text()).text() == session.text()


@golden("server-context.json")
def test_a_merged_context_is_shown_and_restored_as_by_the_kernel(case: Any) -> None:
    expected = case["expect"]
    messages = fold(record_of(op) for op in case["ops"]).messages()
    shown = render(context_of(messages), WINDOW)
    rendered = shown.to_json()
    assert shown.exact is not needs_tokenizer(case, expected["render"])
    if not shown.exact:
        rendered["estimated_tokens"] = expected["render"]["estimated_tokens"]
    assert text(rendered) == text(expected["render"])
    context = restore_checkpoint(decode_checkpoint(session_checkpoint(case["name"], messages)))
    assert expected["restore_ok"]
    assert text(context.partition_tokens) == text(expected["partition_tokens"])
    assert text(context.messages()) == text(messages)
