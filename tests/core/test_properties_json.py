"""JSON against Python's own reader and the letter of the spec (car-sync.md §1, §4.4)."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldpoint.canonical import I64_MIN, MAX_TEXT_DEPTH, U64_MAX, Json, Unreadable, canonical, is_deeper, read_json
from tests.fixtures.ops import THOROUGH, json_values

decimals = st.from_regex(r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
numerals = decimals | st.integers(-(2**65), 2**65).map(str)
nested = st.integers(0, 200).flatmap(
    lambda n: json_values.map(lambda value: json.loads('[{"}]":' * n + json.dumps(value) + "}]" * n))
)


@THOROUGH
@given(value=json_values)
def test_canonical_text_is_by_the_letter(value: Json) -> None:
    assert canonical(value).decode() == by_the_letter(value)


@THOROUGH
@given(value=json_values)
def test_canonical_text_is_a_fixpoint(value: Json) -> None:
    assert canonical(read_json(canonical(value))) == canonical(value)


@THOROUGH
@given(value=json_values, ascii_only=st.booleans(), indent=st.none() | st.integers(0, 2))
def test_any_layout_of_a_value_reads_alike(value: Json, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    assert canonical(read_json(text)) == canonical(value)


@THOROUGH
@given(numeral=numerals)
def test_numerals_read_as_integers_in_range_or_doubles(numeral: str) -> None:
    expected = number_by_the_letter(numeral)
    if isinstance(expected, float) and math.isinf(expected):
        with pytest.raises(Unreadable):
            read_json(numeral.encode())
        return
    value = read_json(numeral.encode())
    assert (type(value), repr(value)) == (type(expected), repr(expected))
    assert canonical(read_json(b'{"-0":[%b,-0]}' % numeral.encode())).decode() == by_the_letter(
        {"-0": [expected, -0.0]}
    )


@THOROUGH
@given(value=nested)
def test_depth_is_counted_outside_strings(value: Json) -> None:
    text, depth = json.dumps(value).encode(), depth_of(value)
    assert not is_deeper(text, depth)
    assert depth == 0 or is_deeper(text, depth - 1)
    if depth > MAX_TEXT_DEPTH:
        with pytest.raises(Unreadable):
            read_json(text)
    else:
        assert canonical(read_json(text)) == canonical(value)


def by_the_letter(value: Json) -> str:
    """Canonical JSON as §4.4 tells it."""
    match value:
        case dict():
            return "{" + ",".join(f"{by_the_letter(key)}:{by_the_letter(value[key])}" for key in sorted(value)) + "}"
        case list():
            return "[" + ",".join(map(by_the_letter, value)) + "]"
        case float():
            return float_by_the_letter(value)
        case _:
            return json.dumps(value, ensure_ascii=False)


def float_by_the_letter(value: float) -> str:
    """§1.4, from Python's digits."""
    digits, _, exponent = repr(value).partition("e")
    if exponent == "-05":
        sign = "-" if value < 0 else ""
        return sign + "0.0000" + digits.removeprefix("-").replace(".", "")
    return repr(value).replace("e-0", "e-")


def number_by_the_letter(numeral: str) -> int | float:
    """§1.1 and §1.2."""
    if numeral.removeprefix("-").isdigit() and numeral != "-0" and I64_MIN <= int(numeral) <= U64_MAX:
        return int(numeral)
    return float(numeral)


def depth_of(value: Json) -> int:
    match value:
        case dict():
            return 1 + max((depth_of(inner) for inner in value.values()), default=0)
        case list():
            return 1 + max((depth_of(inner) for inner in value), default=0)
        case _:
            return 0
