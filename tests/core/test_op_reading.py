"""What the text of an op may not hold (car-sync.md §1.6, §1.7)."""

import pytest

from foldpoint.canonical import Unreadable, read_json
from foldpoint.hlc import Hlc
from foldpoint.op import make_op
from foldpoint.op_text import read_op

OP = make_op("d", 1, "op-0", Hlc(7, 2, "d"), "shared:acme", "registry:config", {"a": 1})


@pytest.mark.parametrize(
    "member",
    [
        f'"op_id":"{OP.op_id}"',
        '"hlc":{"wall_ms":7,"counter":2,"device_id":"d"}',
        '"wall_ms":7',
        '"counter":2',
        '"device_id":"d"',
        '"seq":1',
        '"prev":"op-0"',
        '"scope":{"shared":{"org":"acme"}}',
        '"shared":{"org":"acme"}',
        '"org":"acme"',
        '"surface":{"registry":{"kind":"config"}}',
        '"registry":{"kind":"config"}',
        '"kind":"config"',
        '"payload":{"a":1}',
    ],
)
def test_a_field_given_twice_is_unreadable(member: str) -> None:
    text = OP.text().decode()
    assert member in text
    with pytest.raises(Unreadable, match="duplicate field"):
        read_op(text.replace(member, f"{member},{member}", 1).encode())


def test_a_field_given_twice_in_another_spelling_is_unreadable() -> None:
    with pytest.raises(Unreadable, match="duplicate field"):
        read_op(OP.text().replace(b'"seq":1', rb'"seq":1,"s\u0065q":1'))


@pytest.mark.parametrize(
    ("member", "given"),
    [
        ('"seq":1', '"later":1,"seq":1,"later":2'),
        ('"org":"acme"', '"x":1,"org":"acme","x":2'),
        ('"kind":"config"', '"x":1,"x":2,"kind":"config"'),
        ('"counter":2', '"x":1,"x":2,"counter":2'),
        ('{"a":1}', '{"a":0,"a":1}'),
    ],
)
def test_unknown_fields_and_payload_keys_may_repeat(member: str, given: str) -> None:
    assert read_op(OP.text().decode().replace(member, given, 1).encode()).text() == OP.text()


def test_a_repeated_key_in_a_large_payload_takes_no_time() -> None:
    members = ",".join(f'"k{i}":{i}' for i in range(200_000))
    text = OP.text().replace(b'{"a":1}', f'{{{members},"k0":0}}'.encode())
    assert read_op(text).payload == {f"k{i}": i for i in range(200_000)}


@pytest.mark.parametrize(
    "text", [b'"\xff"', b'"\xc0\x80"', b'"\xed\xa0\x80"', b"\xef\xbb\xbf1", b'"\n"', b'"\0"', b"1\0"]
)
def test_bytes_that_are_not_json_in_utf8_are_unreadable(text: bytes) -> None:
    with pytest.raises(Unreadable):
        read_json(text)


@pytest.mark.parametrize("depth", [127, 300, 1_000, 100_000])
@pytest.mark.parametrize(
    "place",
    ['{"a":1}', '"op-0"', '{"org":"acme"}', '{"kind":"config"}', '{"registry":{"kind":"config"}}', OP.text().decode()],
)
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ("[", "")])
def test_a_text_nested_too_deeply_is_unreadable(place: str, depth: int, opening: str, closing: str) -> None:
    nested = opening * depth + "1" + closing * depth
    with pytest.raises(Unreadable):
        read_op(OP.text().decode().replace(place, nested, 1).encode())
