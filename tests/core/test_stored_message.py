"""Rules of stored messages that no vector shows (stored-message.md §4, §8, §9, §11)."""

from typing import Any

import pytest

from foldpoint.canonical import canonical
from foldpoint.hlc import U32_MAX, Hlc
from foldpoint.projection import BelowSnapshot
from foldpoint.state import Record
from foldpoint.stored_message.checkpoint import read_checkpoint, session_checkpoint
from foldpoint.stored_message.context import context_of, restore_context
from foldpoint.stored_message.context_vm import empty_context_vm
from foldpoint.stored_message.ops import admit, read_op
from foldpoint.stored_message.refusals import Incompatible, Kind, Malformed
from foldpoint.stored_message.render import render
from foldpoint.stored_message.session import fold
from tests.core.stored_messages import message, op, put, with_options
from tests.fixtures.stored_message_vectors import context_record, text


def test_an_admitted_put_is_spelled_so_that_a_checkpoint_restores() -> None:
    spoken = message("assistant", calls=("c",))
    spoken["tool_calls"][0]["arguments"] = '{ "b": 1e2, "a": [2] }'
    admitted = admit({"op": "put", "message_id": "m", "pos": 0, "message": spoken})
    assert admitted["message"]["tool_calls"][0]["arguments"] == '{"a":[2],"b":100.0}'

    inline = message("tool", {"form": "inline", "text": "out", "tool_call_id": "c", "is_error": True})
    admitted = admit({"op": "put", "message_id": "m", "pos": 0, "message": inline})
    block = {"type": "text", "text": "out"}
    assert admitted["message"]["body"] == {
        "form": "structured",
        "durable_tool_results": [{"call_id": "c", "is_error": True, "blocks": [block]}],
    }

    written = message("user", {"form": "structured", "durable_content": {"blocks": [block, block]}})
    admitted = admit({"op": "put", "message_id": "m", "pos": 0, "message": written})
    assert admitted["message"]["body"] == message("user", "outout")["body"]


@pytest.mark.parametrize(
    "body",
    [
        {"form": "reference", "handle_id": 1, "digest": "sha256:aa", "preview": "p", "tool_call_id": "c"},
        {
            "form": "structured",
            "durable_content": {
                "blocks": [
                    {
                        "type": "image",
                        "source": {"kind": "url", "url": "u"},
                        "provider_options": {"detail": "low", "x": 0.1},
                    }
                ]
            },
        },
    ],
)
def test_an_admitted_put_loses_neither_references_nor_provider_options(body: Any) -> None:
    kept = message("user", body)
    admitted = admit({"op": "put", "message_id": "m", "pos": 0, "message": kept})
    assert text(admitted["message"]) == text(kept)


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        ({"op": "put", "message_id": "m", "message": message("user")}, Kind.MISSING_FIELD),
        ({"op": "put", "message_id": "m", "pos": 1.0, "message": message("user")}, Kind.INVALID_TYPE),
        ({"op": "put", "message_id": "m", "pos": 0, "message": {**message("user"), "id": "x"}}, Kind.UNKNOWN_FIELD),
        ({"op": "move", "message_id": "m", "pos": 0, "partition": "knowledge"}, Kind.UNKNOWN_VARIANT),
        ({"op": "remove", "message_id": "m", "pos": 0}, Kind.UNKNOWN_FIELD),
        ({"op": "swap", "message_id": "m"}, Kind.UNKNOWN_VARIANT),
    ],
)
def test_a_hosted_op_is_read_strictly(body: Any, refused: Kind) -> None:
    with pytest.raises(Malformed) as error:
        admit(body)
    assert error.value.kind is refused


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    "refused",
    [
        message("boss"),
        message("assistant", tool_calls=[{"call_id": "c", "name": "n", "arguments": "{"}]),
        message("user", {"form": "structured"}),
        # What these become in a checkpoint would be refused there.
        message("tool", {"form": "inline", "text": "x", "tool_call_id": ""}),
        message("tool", {"form": "reference", "handle_id": 1, "digest": "d", "preview": "", "tool_call_id": ""}),
        with_options(2**53),
        with_options([-(2**53)]),
        with_options(nested(118)),
    ],
)
def test_what_a_gate_refuses_is_refused_at_push_and_skipped_in_the_fold(refused: Any) -> None:
    body = {"op": "put", "message_id": "m", "pos": 0, "message": refused}
    with pytest.raises(Incompatible):
        admit(body)
    assert read_op(op(1, body)) is None


def test_what_just_fits_a_checkpoint_is_admitted() -> None:
    for options in (2**53 - 1, nested(117)):
        fits = with_options(options)
        assert admit({"op": "put", "message_id": "m", "pos": 0, "message": fits})
        assert read_checkpoint(canonical(session_checkpoint("s", [fits])))
    with pytest.raises(Malformed):
        read_checkpoint(canonical(session_checkpoint("s", [with_options(nested(118))])))
    with pytest.raises(Incompatible):
        session_checkpoint("s", [with_options(nested(119))])


def test_an_op_is_read_only_under_the_id_of_its_author() -> None:
    record = put(1, "m")
    assert read_op(record) is not None
    assert read_op(record._replace(hlc=Hlc(1, 0, "laptop"))) is None
    assert read_op(record._replace(payload=canonical({**record.value(), "pos": 1}))) is None
    hosted = context_record(Hlc(1, 0, "worker"), "op-1", record.value())
    assert read_op(hosted._replace(hlc=Hlc(1, 0, "hosted-worker-0a1b2c3d"))) is not None


@pytest.mark.parametrize(
    "body",
    [
        {"op": "put", "message_id": "m", "message": message("user")},
        {"op": "put", "message_id": 1, "pos": 0, "message": message("user")},
        {"op": "move", "message_id": "m", "pos": 0},
        {"op": "swap", "message_id": "m"},
        {"message_id": "m"},
        {"op": "remove", "message_id": "m", "session": None},
    ],
)
def test_what_cannot_be_read_is_skipped(body: Any) -> None:
    assert read_op(op(1, body)) is None
    assert fold([op(1, body)]).to_json()["messages"] == []


def test_keys_that_an_op_does_not_need_are_ignored() -> None:
    assert read_op(op(1, {"op": "remove", "message_id": "m", "pos": 4, "later": True})) is not None


def test_a_payload_is_not_an_object() -> None:
    assert read_op(Record(Hlc(1, 0, "phone"), "op-1", b"[]")) is None


def test_messages_of_one_pos_stand_by_their_first_put_and_then_by_id() -> None:
    edit = put(3, "b", message=message("user", "edited"))
    records = [put(2, "a"), put(1, "b"), edit, put(4, "c", pos=-1)]
    assert fold(records).message_ids() == ["c", "b", "a"]


def test_a_snapshot_is_stale_for_what_is_not_later() -> None:
    session = fold([put(5, "a")])
    for late in (put(4, "b"), put(5, "a")):
        with pytest.raises(BelowSnapshot):
            session.extend([put(6, "c"), late])
    assert session.extend([]) is session


def test_a_first_put_that_its_author_wrote_again_has_moved() -> None:
    """The registry keeps the later record, so the earlier one no longer orders anything."""
    edit = {"message": message("user", "edited")}
    first, again = put(1, "a"), put(9, "a")
    alone = fold([first, put(2, "b")])
    assert alone.message_ids() == ["a", "b"]
    assert alone.extend([again]).text() == fold([put(2, "b"), again]).text()
    edited = fold([first, put(2, "b"), put(3, "a", **edit)])
    with pytest.raises(BelowSnapshot):
        edited.extend([again])
    assert fold([first, put(2, "b"), put(3, "a", **edit), again]).message_ids() == ["b", "a"]


def test_totals_are_wide_and_a_checkpoint_refuses_them_above_u32() -> None:
    session = fold(put(at, str(at), message=message("user", tokens=U32_MAX)) for at in (1, 2))
    assert session.to_json()["partition_tokens"]["history"] == 2 * U32_MAX
    assert render(context_of(session.messages()), U32_MAX).estimated_tokens == 2 * U32_MAX + 1
    with pytest.raises(Incompatible):
        restore_context({**empty_context_vm(), "messages": session.messages()})
    with pytest.raises(Incompatible):
        session_checkpoint("s", session.messages())
    assert session_checkpoint("s", session.messages()[:1])
