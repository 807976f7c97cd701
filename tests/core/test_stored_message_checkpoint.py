"""Checkpoints of contexts, where no vector shows the rule (stored-message.md §5)."""

from math import nextafter
from typing import Any

import pytest

from foldpoint.stored_message.checkpoint import assemble, decode_checkpoint, restore_checkpoint, session_checkpoint
from foldpoint.stored_message.digest import canonical_bytes, digest, settled
from foldpoint.stored_message.refusals import Corrupted, Incompatible, Malformed, Refused
from tests.core.stored_messages import message, with_options
from tests.fixtures.stored_message_vectors import text, vector_file


@pytest.mark.parametrize("number", [0.1, 2.5, -1e22, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 0.0])
def test_floats_that_every_reader_gets_right_do_not_move(number: float) -> None:
    assert settled({"a": [number, -number]}) == {"a": [number, -number]}


def test_a_float_that_a_fast_reader_gets_wrong_moves_by_a_unit_in_the_last_place() -> None:
    """0.9925434121760651 is read as 0.9925434121760652 by a kernel built without exact float reading."""
    moved = settled(0.9925434121760651)
    assert moved in {nextafter(0.9925434121760651, 0), nextafter(0.9925434121760651, 1)}
    calls = [{"call_id": "c", "name": "n", "arguments": "[0.9925434121760651]"}]
    document = session_checkpoint("s", [message("assistant", tool_calls=calls)])
    (stored,) = restore_checkpoint(document).messages()
    assert stored["tool_calls"][0]["arguments"] == text([moved])
    document = session_checkpoint("s", [with_options({"x": 0.9925434121760651})])
    assert text({"x": moved}) in text(document)


def test_the_tail_of_a_checkpoint_is_checked() -> None:
    document = vector_file("checkpoint-header.json")["cases"][0]["document"]
    digests = {"state_digest", "tail_digest", "checkpoint_digest"}
    draft = {name: value for name, value in document.items() if name not in digests}
    entry = {"step_seq": "1", "record_digest": "sha256:bb", "input": {"operation_id": draft["operation_id"]}}
    good: dict[str, Any] = {
        "through_step_seq": "1",
        "tail_inputs": [entry],
        "covered_transaction_head_digest": "sha256:bb",
    }
    assert assemble({**draft, **good})["tail_inputs"] == [entry]
    wrong: list[tuple[dict[str, Any], type[Refused]]] = [
        ({"tail_inputs": [{**entry, "step_seq": "2"}]}, Corrupted),
        ({"tail_inputs": [entry, entry]}, Corrupted),
        ({"covered_transaction_head_digest": "sha256:cc"}, Corrupted),
        ({"tail_inputs": [{**entry, "input": {"operation_id": "other"}}]}, Incompatible),
        ({"tail_inputs": [{**entry, "input": None}]}, Incompatible),
        ({"through_step_seq": "0"}, Corrupted),
        ({"through_step_seq": "01"}, Malformed),
        ({"through_step_seq": str(2**64)}, Malformed),
    ]
    with pytest.raises(Corrupted):
        assemble({**draft, "base_record_digest": "sha256:cc"})
    forged = {**document, "through_step_seq": "1"}
    del forged["checkpoint_digest"]
    with pytest.raises(Corrupted):
        decode_checkpoint({**forged, "checkpoint_digest": digest(forged)})
    for change, refused in wrong:
        with pytest.raises(Refused) as error:
            assemble({**draft, **good, **change})
        assert type(error.value) is refused


def test_canonical_numbers_are_integers_where_they_can_be() -> None:
    assert canonical_bytes([2.0, -0.0, 0.5, 1e16, 2**53 - 1]) == b"[2,0,0.5,1e+16,9007199254740991]"
