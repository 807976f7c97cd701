"""An op record reads the same however it is written, and never as something else (car-sync.md §1.7, §4.1)."""

import json

from hypothesis import given
from hypothesis import strategies as st

from foldpoint.canonical import Json, Unreadable
from foldpoint.op import Op
from foldpoint.op_text import read_op, read_op_text
from tests.fixtures.ops import THOROUGH, json_values, logs, odd_texts

#: Parts of other texts, numbers out of range, and what is JSON only elsewhere.
INTRUDERS = [
    *rb"""
    0 -0 .0 e1 - 1e400 18446744073709551615 18446744073709551616 4294967296
    " , : { } {} [1] "x" null true NaN \ \u0000 \ud800 \u0061 \/ {"personal":null}
    "seq":0, "prev":null, "later":1, "payload":1, "device_id":"", "kind":"",
    """.split(),
    *(b"", b" ", b"\n", b"\0", b"\xff", b"\xf0\x9f", b"\xef\xbb\xbf", b"[" * 130, b"[" * 5_000),
]
#: Most damage is done right behind a key.
KEYS = [
    b'"%b":' % key for key in b"op_id wall_ms counter device_id seq prev scope surface payload shared org kind".split()
]


@THOROUGH
@given(log=logs())
def test_op_survives_its_text(log: list[Op]) -> None:
    for op in log:
        again = read_op(op.text())
        assert again == op
        assert (again.text(), again.payload_text) == (op.text(), op.payload_text)
        assert json.dumps(op.to_json()) == json.dumps(json.loads(op.text()) | {"payload": op.payload})


@THOROUGH
@given(log=logs(min_size=1, max_size=3), data=st.data(), extra=st.dictionaries(odd_texts.map("x".__add__), json_values))
def test_op_reads_alike_in_any_layout(log: list[Op], data: st.DataObject, extra: dict[str, Json]) -> None:
    op = log[-1]
    record = {**op.to_json(), **extra}
    names = data.draw(st.permutations(sorted(record)))
    text = json.dumps({name: record[name] for name in names}, indent=1).encode()
    assert read_op(text).text() == op.text()


@st.composite
def damaged(draw: st.DrawFn, op: Op) -> bytes:
    """The op's text with something in it that was not there, or without something that was."""
    text = op.text()
    key = draw(st.sampled_from([key for key in KEYS if key in text]))
    near = text.index(key) + len(key)
    at = draw(st.just(near) | st.integers(0, len(text)))
    return text[:at] + draw(st.sampled_from(INTRUDERS)) + text[at + draw(st.integers(0, 4)) :]


def outcome(text: bytes) -> tuple[bytes, bytes] | None:
    """What a text says; None if it is unreadable."""
    try:
        op = read_op(text)
    except Unreadable:
        return None
    return op.text(), op.payload_text


@THOROUGH
@given(log=logs(min_size=1, max_size=2), data=st.data())
def test_a_damaged_text_reads_as_what_it_says_or_not_at_all(log: list[Op], data: st.DataObject) -> None:
    """A space in front changes nothing that a text says, but rules out the shortcut for emitted texts."""
    text = data.draw(damaged(log[-1]))
    assert outcome(text) == outcome(b" " + text)


@THOROUGH
@given(log=logs())
def test_the_emitted_text_and_the_place_of_its_payload(log: list[Op]) -> None:
    for op in log:
        for text in (op.text(), op.text() + b" "):
            read = read_op_text(text)
            assert (read.op, read.text) == (op, op.text())
            assert read.text[read.payload_at : -1] == op.payload_text
