"""The wire forms and gates of stored messages against the original kernel's answers."""

from typing import Any

import pytest

from foldpoint.canonical import canonical
from foldpoint.stored_message.checkpoint import blank_checkpoint, check_bodies, read_checkpoint, restore_checkpoint
from foldpoint.stored_message.context import Context, restore_context
from foldpoint.stored_message.context_vm import decode_context_vm, empty_context_vm
from foldpoint.stored_message.digest import canonical_bytes, digest
from foldpoint.stored_message.message import read_message
from foldpoint.stored_message.refusals import Malformed, Refused
from foldpoint.stored_message.render import render
from tests.fixtures.stored_message_vectors import (
    DEVIATIONS,
    compared,
    golden,
    needs_tokenizer,
    place,
    text,
    wire_text,
)

GATES = ("decode", "assemble", "restore", "full_restore")


@golden("decode-cases.json", "decode-sweep.json")
def test_a_message_is_decoded_or_refused_as_by_the_kernel(case: Any) -> None:
    text_of_message = case["input"].encode()
    if place(case) in DEVIATIONS or not case["ok"]:
        with pytest.raises(Malformed) as refused:
            read_message(text_of_message)
        assert case["ok"] or refused.value.kind == case["error"]["class"]
        return
    message: Any = read_message(text_of_message)
    assert wire_text(message) == case["normalized"]
    assert canonical_bytes(message).decode() == case["canonical"]
    assert digest(message) == case["digest"]


@golden("restore-cases.json", "render-random.json")
def test_a_context_passes_the_gates_and_is_restored_as_by_the_kernel(case: Any) -> None:
    answers = gates(case)
    expected = {
        name: compared(case[name]) for name in ("decode", "assemble", "restore", "full_restore") if name in case
    }
    if "error" in expected["decode"]:
        expected["decode"]["error"] = compared(expected["decode"]["error"])
    assert text(answers) == text(expected)


def gates(case: Any) -> dict[str, Any]:
    """What each gate answers, up to the first that refuses for good."""
    try:
        vm = decode_context_vm({**empty_context_vm(), **case["context"]})
    except Malformed as error:
        return {"decode": {"ok": False, "error": {"class": error.kind}}}
    answers: dict[str, Any] = {"decode": {"ok": True}, "assemble": {"ok": True}}
    try:
        check_bodies(vm)
    except Refused as error:
        answers["assemble"] = {"ok": False, "code": error.code}
    try:
        context = restore_context(vm)
    except Refused as error:
        return {**answers, "restore": {"ok": False, "code": error.code}}
    return {**answers, "restore": restored(case, context, vm), "full_restore": whole_restore(case, context, vm)}


def restored(case: Any, context: Context, vm: dict[str, Any]) -> dict[str, Any]:
    shown = render(context, case["max_context_tokens"])
    rendered, expected = shown.to_json(), case["restore"]["render"]
    assert shown.exact is not needs_tokenizer(case, expected)
    if not shown.exact:
        rendered["estimated_tokens"] = expected["estimated_tokens"]
    written = {
        "messages": context.messages(),
        "held": context.held_messages(),
        "knowledge": [slot.to_json(context.handles) for slot in context.knowledge],
    }
    given = {"messages": vm["messages"], "held": vm.get("held_history", []), "knowledge": vm["knowledge"]}
    return {
        "ok": True,
        "system": [row.live.to_json() for row in context.system],
        "history": [row.live.to_json() for row in context.history],
        "partition_tokens": context.partition_tokens,
        "history_len": len(context.history),
        **{f"reprojected_{name}": value for name, value in written.items()},
        "stable": text(written) == text(given),
        "render": rendered,
    }


def whole_restore(case: Any, context: Context, vm: dict[str, Any]) -> dict[str, Any]:
    """A whole checkpoint with this context, all that the case does not give derived as the kernel would."""
    derived = ("partition_tokens", "history_len", "system_measurements", "history_measurements", "history_items")
    written = context.to_vm()
    given = {**vm, **{name: written[name] for name in derived if name in written and name not in case["context"]}}
    document = read_checkpoint(canonical(blank_checkpoint(case["name"], given)))
    try:
        again = restore_checkpoint(document)
    except Refused as error:
        return {"ok": False, "code": error.code, "stage": "restore"}
    assert text(again.to_vm()) == text(document["logical_state"]["context_vm"])
    return {"ok": True}
