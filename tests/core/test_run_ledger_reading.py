"""Where our readers are as strict as the crate's, beyond its vectors (run-ledger.md §3, §6)."""

from typing import Any

import pytest

from foldpoint.canonical import Json
from foldpoint.run_ledger.equality import same_json
from foldpoint.run_ledger.reading import Undecodable, identifier, read_text
from foldpoint.run_ledger.wire import EVENT, MESSAGE, read_record

CALL = '{"id":"c","tool":"x","effect":"network","input":%s}'
PROPOSED = '{"event":"tool_call_proposed","run_id":"r","turn_id":"t","call":%s}'


def event(text: str) -> Any:
    return read_text(EVENT, text.encode())


@pytest.mark.parametrize("blank", [*"\t\n\v\f\r \x85\xa0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000", " \u2003\t"])
def test_white_space_is_no_id(blank: str) -> None:
    with pytest.raises(Undecodable):
        identifier(blank)


@pytest.mark.parametrize("name", [*"\x1c\x1d\x1e\x1f\u180e\u200b\u2060\ufeff\0"])
def test_other_invisible_characters_are_one(name: str) -> None:
    assert identifier(name) == name


def test_an_enum_is_a_string() -> None:
    with pytest.raises(Undecodable) as refused:
        read_text(MESSAGE, b'{"role":{"assistant":null},"content":""}')
    assert (refused.value.error_class, refused.value.path) == ("invalid_type", "role")


def test_the_path_leads_to_the_place() -> None:
    text = (
        b'{"seq":0,"occurred_at_ms":0,"event":{"event":"context_built","run_id":"r","turn_id":"t","context":'
        b'{"token_budget":1,"fragments":[{"lane":"policy","source":"","content":"","estimated_tokens":0},'
        b'{"lane":"policy","source":"","content":"","estimated_tokens":1.0}]}}}'
    )
    with pytest.raises(Undecodable) as refused:
        read_text(read_record, text)
    assert refused.value.path == "event.context.fragments.1.estimated_tokens"


@pytest.mark.parametrize("number", ["true", "-0", "1e0", "null"])
def test_an_integer_is_written_as_one(number: str) -> None:
    with pytest.raises(Undecodable):
        event(f'{{"event":"model_failed","run_id":"r","turn_id":"t","step":{number},"reason":""}}')


@pytest.mark.parametrize("member", ['"id":"c"', '"effect":"network"', r'"\u0069d":"c"'])
def test_a_typed_object_repeats_no_key(member: str) -> None:
    call = CALL % "1"
    with pytest.raises(Undecodable) as refused:
        event(PROPOSED % call.replace("{", "{" + member + ","))
    assert refused.value.error_class == "duplicate_field"


def test_free_json_may_repeat_keys_of_its_own() -> None:
    assert event(PROPOSED % (CALL % '[{"id":1,"id":2}]'))["call"]["input"] == [{"id": 2}]


@pytest.mark.parametrize(("depth", "readable"), [(125, True), (126, False)])
def test_a_text_nests_127_deep(depth: int, readable: bool) -> None:
    text = PROPOSED % (CALL % ("[" * depth + "]" * depth))
    if readable:
        assert event(text)
    else:
        with pytest.raises(Undecodable):
            event(text)


@pytest.mark.parametrize("text", [b'\xef\xbb\xbf{"event":"run_finished","run_id":"r"}', b'"\xff"'])
def test_only_plain_utf8_is_json(text: bytes) -> None:
    with pytest.raises(Undecodable) as refused:
        read_text(EVENT, text)
    assert refused.value.error_class == "syntax"


@pytest.mark.parametrize(
    ("one", "other"),
    [({"a": 1, "b": [2]}, {"b": [2], "a": 1}), (-0.0, 0.0), (100.0, 1e2), ([None, True, "é"], [None, True, "é"])],
)
def test_equal_inputs(one: Json, other: Json) -> None:
    assert same_json(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        (0, -0.0),
        (0, None),
        ([1, 2], [2, 1]),
        ([1], [1, 1]),
        ({"a": 1}, {"a": 1, "b": 1}),
        ({"a": 1}, {"b": 1}),
        ({"a": {"b": [1]}}, {"a": {"b": [1.0]}}),
        ("é", "e\u0301"),
    ],
)
def test_different_inputs(one: Json, other: Json) -> None:
    assert not same_json(one, other)
    assert not same_json(other, one)
