import struct
from typing import Any

import pytest

from foldpoint.canonical import Unreadable, canonical, read_json
from foldpoint.op_text import read_op
from tests.fixtures.vectors import DEVIATIONS, golden


@golden("canonical.json/cases")
def test_json_is_read_strictly_and_written_canonically(case: Any) -> None:
    text = case["text"].encode()
    if case["canonical"] is None:
        with pytest.raises(Unreadable):
            read_json(text)
    else:
        assert canonical(read_json(text)).decode() == case["canonical"]


@golden("canonical.json/float_parse")
def test_numbers_are_read_correctly_rounded(case: Any) -> None:
    value = read_json(case["text"].encode())
    assert isinstance(value, float)
    assert struct.pack(">d", value).hex() == case["exact_bits"] == case["crate_bits"]
    assert canonical(value).decode() == case["exact_canonical"]


@golden("wire.json/cases")
def test_op_record_text(case: Any) -> None:
    text = case["text"].encode()
    if not case["ok"] or ("wire.json/cases", case["name"]) in DEVIATIONS:
        with pytest.raises(Unreadable):
            read_op(text)
        return
    op = read_op(text)
    assert op.text().decode() == case["reemitted"]
    assert op.computed_id() == case["computed_op_id"]
    assert (op.computed_id() == op.op_id) is case["id_valid"]
    assert (op.scope, op.surface) == (case["scope_tag"], case["surface_tag"])
    assert read_op(op.text()) == op
