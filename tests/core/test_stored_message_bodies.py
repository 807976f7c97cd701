"""What durable bodies hold and where bodies live (stored-message.md §4–6, §9)."""

from typing import Any

import pytest

from foldpoint.stored_message.checkpoint import check_bodies
from foldpoint.stored_message.content import check_body
from foldpoint.stored_message.context import Context, fingerprint, restore_context
from foldpoint.stored_message.context_vm import decode_context_vm, empty_context_vm
from foldpoint.stored_message.message import StoredMessage
from foldpoint.stored_message.refusals import Incompatible
from foldpoint.stored_message.render import render
from tests.core.stored_messages import message, result

FILE = {"kind": "file_id", "id": "f", "affinity": {"provider_id": "p", "endpoint_id": "e"}}
OBJECT = {"kind": "object", "handle": "h", "owner": "o", "payload_ref": "r"}


def with_source(source: Any, **more: Any) -> StoredMessage:
    block = {"type": "file", "source": source, **more}
    results = [{"call_id": "c", "is_error": False, "blocks": [block]}]
    return message("tool", {"form": "structured", "durable_tool_results": results})


@pytest.mark.parametrize("source", [FILE, OBJECT])
def test_a_whole_source_passes(source: Any) -> None:
    check_body(with_source(source, media_type="a/b")["body"])


@pytest.mark.parametrize(
    "source",
    [
        {**FILE, "id": ""},
        {**FILE, "affinity": {"provider_id": "", "endpoint_id": "e"}},
        {**FILE, "affinity": {"provider_id": "p", "endpoint_id": ""}},
        {**OBJECT, "handle": ""},
        {**OBJECT, "owner": ""},
        {**OBJECT, "payload_ref": ""},
        {"kind": "base64", "data": "aW1"},
    ],
)
def test_a_source_with_an_empty_part_is_refused(source: Any) -> None:
    with pytest.raises(Incompatible):
        check_body(with_source(source)["body"])


def handle(residency: str, **more: Any) -> dict[str, Any]:
    return {"handle_id": 4, "kind": "tool_result", "residency": residency, "tokens": 3, "source": "c", **more}


def restored(handles: dict[str, Any], *messages: StoredMessage) -> Context:
    vm = {**empty_context_vm(), "messages": list(messages), "handles": [handles], "next_handle_id": 5}
    return restore_context(decode_context_vm(vm))


AWAY = {"payload_ref": "p", "digest": "sha256:aa", "original_size": "9000"}


def output(context: Context) -> str:
    content: Any = render(context, 1_000).turns[-1].content
    shown: str = content[0]["output"]
    return shown


def spoken(text: str) -> StoredMessage:
    return message("tool", {"form": "inline", "text": text, "tool_call_id": "c"})


@pytest.mark.parametrize("residency", ["collapsed", "paged_out"])
def test_a_result_out_of_view_is_shown_as_a_preview(residency: str) -> None:
    context = restored(handle(residency, **AWAY), message("user"), spoken("x" + "é" * 100))
    kept, notice = output(context).split("…\n")
    assert kept == "x" + "é" * 79
    assert notice.startswith("[Output truncated: 42 bytes omitted.")
    assert context.history[1].live.results[0]["output"] == "x" + "é" * 100
    again = restored(handle(residency, **AWAY), message("user"), spoken(output(context)))
    assert output(again) == output(context)


@pytest.mark.parametrize("residency", ["resident", "external"])
def test_other_results_are_shown_as_they_are(residency: str) -> None:
    assert output(restored(handle(residency, **AWAY), message("user"), spoken("x" * 200))) == "x" * 200


def test_a_body_with_the_host_is_written_as_a_reference() -> None:
    body = restored(handle("external", **AWAY), spoken("é" * 2_000)).messages()[0]["body"]
    assert body["form"] == "reference"
    assert (body["handle_id"], body["digest"], body["preview"]) == (4, "sha256:aa", "é" * 1_024)


@pytest.mark.parametrize("answers", [("c",), ("c", "d")])
def test_durable_results_are_never_written_as_references(answers: tuple[str, ...]) -> None:
    kept = result(*answers)
    assert restored(handle("external", **AWAY), kept).messages() == [kept]


def test_several_results_are_never_written_as_a_reference() -> None:
    kept = result("c", "d")
    context = restored(handle("external", **AWAY), kept)
    plain = [
        {name: part[name] for name in part if name != "durable_content"} for part in context.history[0].live.results
    ]
    row = context.history[0]._replace(live=context.history[0].live._replace(content=plain))
    assert Context(history=[row], handles=context.handles).messages() == [kept]


def test_a_handle_keeps_only_what_its_residency_needs() -> None:
    (resident,) = restored(handle("resident", **AWAY)).handles.to_json()
    assert [resident[name] for name in AWAY] == [None, None, None]
    (paged_out,) = restored(handle("paged_out", **AWAY)).handles.to_json()
    assert [paged_out[name] for name in AWAY] == ["p", "sha256:aa", None]


def test_of_handles_with_one_id_the_last_stays() -> None:
    vm = {**empty_context_vm(), "handles": [handle("resident"), handle("collapsed")], "next_handle_id": 5}
    (kept,) = restore_context(decode_context_vm(vm)).handles.to_json()
    assert kept["residency"] == "collapsed"


def test_a_result_is_measured_with_all_of_its_blocks() -> None:
    """A durable text block and the plain output are one body; a file beside it is not."""
    plain, text = restored(handle("resident"), spoken("c"), result("c")).history
    assert plain.live != text.live
    assert fingerprint(plain.live) == fingerprint(text.live)
    (file,) = restored(handle("resident"), with_source(FILE)).history
    (other,) = restored(handle("resident"), with_source(OBJECT)).history
    assert fingerprint(file.live) != fingerprint(other.live)


def test_measurements_of_more_messages_than_there_are_are_dropped() -> None:
    row = restored(handle("resident"), message("user", tokens=5)).history[0]
    measurement = {**row.write_measurement(), "tokens": 9}
    vm = {**empty_context_vm(), "messages": [message("user", tokens=5)]}
    (measured,) = restore_context(decode_context_vm({**vm, "history_measurements": [measurement]})).history
    assert measured.measured == 9
    (dropped,) = restore_context(decode_context_vm({**vm, "history_measurements": [measurement] * 2})).history
    assert dropped.measured == 5


def slot(key: str | None, **more: Any) -> dict[str, Any]:
    body = {"form": "inline", "text": "x"}
    return {
        "key": key,
        "role": "system",
        "body": body,
        "tokens": 1,
        "pinned": False,
        "evict_at_boundary": False,
        **more,
    }


@pytest.mark.parametrize(
    ("key", "pinned", "origin", "lease"),
    [
        (None, False, "reference", "permanent"),
        ("memory", False, "reference", "permanent"),
        ("memory:r1", False, "memory_recall", {"turns": 8}),
        ("memory:r1", True, "memory_recall", "permanent"),
        ("skill:x", True, "skill", {"until": "skill_deactivated"}),
        ("blackboard:x", False, "blackboard", "permanent"),
    ],
)
def test_knowledge_gets_its_origin_and_lease_from_its_key(
    key: str | None, pinned: bool, origin: str, lease: Any
) -> None:
    vm = decode_context_vm({**empty_context_vm(), "knowledge": [slot(key, pinned=pinned)]})
    (written,) = restore_context(vm).to_vm()["knowledge"]
    assert (written["origin"], written["lease"]) == (origin, lease)


def test_the_assemble_gate_looks_at_knowledge_and_what_is_pending_for_it() -> None:
    bad = {"form": "structured"}
    pending = {**message("system", partition="system"), "body": bad}
    for knowledge in (slot("k", body=bad), slot("k", pending=pending)):
        with pytest.raises(Incompatible):
            check_bodies(decode_context_vm({**empty_context_vm(), "knowledge": [knowledge]}))
