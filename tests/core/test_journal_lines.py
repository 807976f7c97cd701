"""Reading lines as strictly and as leniently as the crate (journal.md §2)."""

import pytest

from foldpoint.canonical import Unreadable
from foldpoint.journal.lines import read_line, read_lines, timestamp, write_line

START = '{"supercode_journal":1,"ts":"t","op":'
CHANGE = '"turn":0,"from_model":"","to_model":""'
USER = '{"supercode_turn":1,"ts":"t","role":"user"}'


def message(turn: str) -> str:
    return f'{START}"message","message":{turn}}}'


def nested(containers: int) -> str:
    """A message whose line opens so many containers, one inside the other."""
    inner = containers - 3
    return message(USER[:-1] + ',"content_parts":[' + "[" * inner + "]" * inner + "]}")


READABLE = {
    "white space of JSON": f'\t {START}"unrewind"}} \r\t',
    "unknown field twice": f'{START}"unrewind","x":1,"x":2}}',
    "another op's field twice": f'{START}"unrewind","to":1,"to":2}}',
    "127 containers": nested(127),
    "brackets in a string": f'{START}"rename","from":"{"[" * 300}","to":""}}',
    "metadata key twice": message(USER[:-1] + ',"metadata":{"a":"1","a":"2"}}'),
    "free JSON key twice": message(USER[:-1] + ',"content_parts":[{"a":1,"a":2}]}'),
    "greatest integers": f'{START}"upgrade","from_version":0,"to_version":4294967295,"original":""}}',
    "greatest count": f'{START}"rewind","to":18446744073709551615}}',
    "least time": f'{START}"usage","record":{{"turn":0,"model":"","timestamp_ms":-9223372036854775808}}}}',
    "turn version of a byte": message('{"supercode_turn":255,"ts":"t","role":"tool"}'),
    "delete character": f'{START}"rename","from":"\x7f","to":""}}',
}

UNREADABLE = {
    "white space that is not JSON's": f'\x0b{START}"unrewind"}}',
    "byte-order mark": f'\ufeff{START}"unrewind"}}',
    "a comment": f'{START}"unrewind"}}//',
    "NaN": f'{START}"usage","record":{{"turn":0,"model":"","cost_usd":NaN}}}}',
    "a number too large in a field nobody reads": f'{START}"unrewind","x":1e999}}',
    "a lone surrogate in a field nobody reads": f'{START}"unrewind","x":"\\ud800"}}',
    "a control character": f'{START}"rename","from":"\x01","to":""}}',
    "128 containers": nested(128),
    "op twice": f'{START}"unrewind","op":"unrewind"}}',
    "ts twice": f'{START}"unrewind","ts":"u"}}',
    "version twice": f'{START}"unrewind","supercode_journal":1}}',
    "own field twice": f'{START}"rewind","to":1,"to":1}}',
    "turn field twice": message(USER[:-1] + ',"role":"user"}'),
    "step field twice": f'{START}"plan","steps":[{{"step":"a","step":"a","status":""}}]}}',
    "record field twice": f'{START}"usage","record":{{"turn":0,"turn":0,"model":""}}}}',
    "function field twice": message(
        USER[:-1] + ',"tool_calls":[{"id":"","function":{"name":"","name":"","arguments":""}}]}'
    ),
    "version 256": f'{{"supercode_journal":256,{START[23:]}"unrewind"}}',
    "version true": f'{{"supercode_journal":true,{START[23:]}"unrewind"}}',
    "version 1.0": f'{{"supercode_journal":1.0,{START[23:]}"unrewind"}}',
    "minus zero": f'{START}"rewind","to":-0}}',
    "an exponent": f'{START}"rewind","to":1e0}}',
    "2^64": f'{START}"rewind","to":18446744073709551616}}',
    "true for a number": f'{START}"rewind","to":true}}',
    "2^32 for a version": f'{START}"upgrade","from_version":4294967296,"to_version":0,"original":""}}',
    "true for a cost": f'{START}"usage","record":{{"turn":0,"model":"","cost_usd":true}}}}',
    "2^63 ms": f'{START}"usage","record":{{"turn":0,"model":"","timestamp_ms":9223372036854775808}}}}',
    "null for a number": f'{START}"usage","record":{{"turn":0,"model":"","prompt_tokens":null}}}}',
    "null for a flag": f'{START}"model_change","record":{{{CHANGE},"reasoning_filtered":null}}}}',
    "one for a flag": f'{START}"model_change","record":{{{CHANGE},"reasoning_filtered":1}}}}',
    "a cost as a string": f'{START}"usage","record":{{"turn":0,"model":"","cost_usd":"1"}}}}',
    "null for a tool call's type": message(
        USER[:-1] + ',"tool_calls":[{"id":"","type":null,"function":{"name":"","arguments":""}}]}'
    ),
    "turn version of more than a byte": message('{"supercode_turn":256,"ts":"t","role":"user"}'),
    "one bad step": f'{START}"plan","steps":[{{"step":"a","status":"b"}},{{"step":"a"}}]}}',
    "steps that are no list": f'{START}"plan","steps":{{}}}}',
}


@pytest.mark.parametrize("line", READABLE.values(), ids=READABLE)
def test_a_line_is_understood(line: str) -> None:
    read_line(line)


@pytest.mark.parametrize("line", UNREADABLE.values(), ids=UNREADABLE)
def test_a_line_is_not_understood(line: str) -> None:
    with pytest.raises(Unreadable):
        read_line(line)


def test_what_was_not_understood_is_named() -> None:
    bad = message(USER[:-1] + ',"tool_calls":[{"id":"c","function":{"name":"n","arguments":{}}}]}')
    (line,) = read_lines(bad.encode())
    assert line.op is None
    assert line.detail == "message.tool_calls[0].function.arguments: expected a string"


@pytest.mark.parametrize("blank", "\t \x0b\x0c\x85\xa0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000")
def test_white_space_alone_is_no_line(blank: str) -> None:
    assert read_lines(f"{blank}\n{blank}{blank}\r\n\r\n".encode()) == []


@pytest.mark.parametrize("other", "\x1c\x1d\x1e\x1f\u200b\ufeff\x00")
def test_what_only_looks_like_white_space_is_a_line(other: str) -> None:
    assert [line.op for line in read_lines(other.encode())] == [None]


@pytest.mark.parametrize("other", "\r\x0b\x0c\x85\u2028\u2029")
def test_only_a_line_feed_ends_a_line(other: str) -> None:
    line = f'{START}"unrewind"}}'
    assert [line.op for line in read_lines(f"{line}{other}{line}".encode())] == [None]


def test_numbers_count_blank_lines_and_one_carriage_return_is_no_part_of_a_line() -> None:
    lines = read_lines(b"\na\r\r\n \r\nb")
    assert [(line.number, line.text) for line in lines] == [(2, "a\r"), (4, "b")]


def test_the_last_of_free_keys_stays_and_numbers_are_the_crates() -> None:
    parts = '[{"a":1,"a":2},-0,18446744073709551615,18446744073709551616,-9223372036854775809]'
    op = read_line(message(USER[:-1] + f',"content_parts":{parts},"metadata":{{"b":"1","a":"2","b":"3"}}}}'))
    assert (
        write_line(op, "t")
        == (
            START + '"message","message":{"supercode_turn":1,"ts":"t","role":"user","content_parts":[{"a":2},-0.0,'
            '18446744073709551615,1.8446744073709552e+19,-9.223372036854776e+18],"metadata":{"a":"2","b":"3"}}}\n'
        ).encode()
    )


@pytest.mark.parametrize(
    ("wall_ms", "written"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (951_782_399_999, "2000-02-28T23:59:59.999Z"),
        (951_782_400_000, "2000-02-29T00:00:00.000Z"),
        (951_868_800_000, "2000-03-01T00:00:00.000Z"),
        (1_772_366_400_000, "2026-03-01T12:00:00.000Z"),
        (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, "+10000-01-01T00:00:00.000Z"),
        (2**63 - 1, "+292278994-08-17T07:12:55.807Z"),
    ],
)
def test_times_are_written_in_rfc_3339(wall_ms: int, written: str) -> None:
    assert timestamp(wall_ms) == written
