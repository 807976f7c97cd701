"""Ops that cannot be read, one by one (server.md §3): everything of a lower seq is admitted, then 422."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from foldpoint.canonical import canonical
from foldpoint.op import Op
from tests.fixtures.devices import Device, NewDevice, body_of, op_ids, op_texts
from tests.wire.answers import read, refused

Record = dict[str, Any]


async def offer(device: Device, *elements: bytes) -> Any:
    return await device.client.post(f"{device.path}/ops", content=b"[" + b",".join(elements) + b"]")


def edited(change: Callable[[Record], Any]) -> Callable[[Op], bytes]:
    def edit(op: Op) -> bytes:
        record = op.to_json()
        change(record)
        return orjson.dumps(record)

    return edit


def setting(path: str, value: Any) -> Callable[[Op], bytes]:
    *outer, name = path.split(".")

    def change(record: Record) -> None:
        for key in outer:
            record = record[key]
        record[name] = value

    return edited(change)


def without(path: str) -> Callable[[Op], bytes]:
    *outer, name = path.split(".")

    def change(record: Record) -> None:
        for key in outer:
            record = record[key]
        del record[name]

    return edited(change)


def replacing(old: bytes, new: bytes) -> Callable[[Op], bytes]:
    """The op's text with one piece replaced."""

    def replace(op: Op) -> bytes:
        assert op.text().count(old) == 1
        return op.text().replace(old, new)

    return replace


def nested(depth: int, opening: bytes = b"[", closing: bytes = b"]") -> bytes:
    return opening * depth + b"0" + closing * depth


UNREADABLE: dict[str, tuple[Callable[[Op], bytes], str]] = {
    "an unknown surface": (setting("surface", "telepathy"), "surface"),
    "a surface of wrong case": (setting("surface", "Knowledge"), "surface"),
    "a registry without a kind": (setting("surface", {"registry": {}}), "surface.registry.kind"),
    "a bare registry": (setting("surface", "registry"), "surface"),
    "an unknown scope": (setting("scope", "public"), "scope"),
    "a seq as a float": (replacing(b'"seq":1', b'"seq":1.0'), "seq"),
    "a seq as a string": (setting("seq", "1"), "seq"),
    "a negative seq": (setting("seq", -1), "seq"),
    "a seq as true": (setting("seq", True), "seq"),
    "R28 a seq of 2^63": (setting("seq", 2**63), "seq"),
    "a seq of 2^64": (replacing(b'"seq":1', b'"seq":18446744073709551616'), "seq"),
    "R09 a wall_ms of 2^63": (setting("hlc.wall_ms", 2**63), "hlc.wall_ms"),
    "R09 a wall_ms as a string": (setting("hlc.wall_ms", "1"), "hlc.wall_ms"),
    "R09 a wall_ms as a float": (setting("hlc.wall_ms", 1e15), "hlc.wall_ms"),
    "R09 a negative wall_ms": (setting("hlc.wall_ms", -1), "hlc.wall_ms"),
    "a counter of 2^32": (setting("hlc.counter", 2**32), "hlc.counter"),
    "no hlc": (without("hlc"), "hlc"),
    "no counter": (without("hlc.counter"), "hlc.counter"),
    "no payload": (without("payload"), "payload"),
    "no op_id": (without("op_id"), "op_id"),
    "a prev that is a number": (setting("prev", 7), "prev"),
    "a duplicate field": (replacing(b'"seq":1', b'"seq":1,"seq":1'), "seq"),
    "a payload of 121 containers": (replacing(b'{"id":"mac-1"}', nested(121)), "payload"),
    "a payload of 121 objects": (replacing(b'{"id":"mac-1"}', nested(121, b'{"a":', b"}")), "payload"),
    "a payload of 100,000 containers": (replacing(b'{"id":"mac-1"}', nested(100_000)), ""),
    "R29 NaN": (replacing(b'"mac-1"', b"NaN"), ""),
    "R29 Infinity": (replacing(b'"mac-1"', b"-Infinity"), ""),
    "a number that overflows": (replacing(b'"mac-1"', b"1e400"), ""),
    "a lone surrogate": (replacing(b'"mac-1"', rb'"\ud800"'), ""),
    "invalid UTF-8": (replacing(b"mac-1", b"mac-\xff"), ""),
    "a raw control character": (replacing(b"mac-1", b"mac\n1"), ""),
    "a number": (lambda _: b"7", ""),
    "null": (lambda _: b"null", ""),
    "an array": (lambda _: b"[]", ""),
    "half an object": (lambda op: op.text()[:-1], ""),
    "an object that ends too soon": (lambda op: op.text()[:40] + b"}", ""),
    "no value at all": (lambda _: b"", ""),
    "a word": (lambda _: b"nul", ""),
}


@pytest.mark.parametrize("fault", UNREADABLE)
async def test_the_ops_before_an_unreadable_one_are_stored_and_its_place_is_named(
    device: NewDevice, fault: str
) -> None:
    mac = device("mac")
    ops = mac.facts(4)
    spoil, path = UNREADABLE[fault]
    problem = refused(await offer(mac, ops[0].text(), spoil(ops[1]), ops[2].text(), ops[3].text()), "unreadable_op")
    assert (problem["index"], problem["path"]) == (1, path)
    assert (problem["accepted"], problem["deduped"]) == (1, 0)
    assert op_ids(await mac.pull()) == [ops[0].op_id]
    assert read(await mac.offer(ops)) == {"accepted": 3, "deduped": 1}


async def test_an_unreadable_op_whose_seq_can_be_read_stops_the_batch_at_its_seq(device: NewDevice) -> None:
    mac = device("mac")
    ops = mac.facts(4)
    bad = setting("surface", "telepathy")(ops[2])
    problem = refused(await offer(mac, bad, ops[3].text(), ops[1].text(), ops[0].text()), "unreadable_op")
    assert (problem["index"], problem["accepted"]) == (0, 2)
    assert op_ids(await mac.pull()) == [op.op_id for op in ops[:2]]


ENDINGS = {
    "a comma too many": b",]",
    "no end": b"",
    "no end after a comma": b",",
    "something after the end": b"]x",
    "a second array": b"][]",
    "another closing": b"}",
}


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
async def test_an_array_that_does_not_end_as_json_is_never_called_taken(device: NewDevice, ending: bytes) -> None:
    mac = device("mac")
    ops = mac.facts(2)
    response = await mac.client.post(f"{mac.path}/ops", content=b"[" + body_of(ops)[1:-1] + ending)
    problem = refused(response, "unreadable_op")
    assert (problem["index"], problem["accepted"]) == (2, 2)


async def test_two_ops_without_a_comma_between_are_not_taken_for_one(device: NewDevice) -> None:
    mac = device("mac")
    ops = mac.facts(2)
    body = b"[" + ops[0].text() + b" " + ops[1].text() + b"]"
    problem = refused(await mac.client.post(f"{mac.path}/ops", content=body), "unreadable_op")
    assert (problem["index"], problem["accepted"]) == (1, 1)


@pytest.mark.parametrize(
    "body", [b"[" * 1_000_000, b"[" * 100_000 + b"]" * 100_000, b'[{"a":' * 100_000, b"[" + b"[]," * 200 + b"1]"]
)
async def test_deep_or_wild_bodies_are_unreadable_and_no_failure_of_ours(device: NewDevice, body: bytes) -> None:
    mac = device("mac")
    assert refused(await mac.client.post(f"{mac.path}/ops", content=body), "unreadable_op")["index"] == 0


@pytest.mark.parametrize(
    "payload",
    [[], {"a": nested(40).decode() * 9}, orjson.loads(nested(120)), orjson.loads(nested(120, b'{"a":', b"}"))],
)
async def test_a_payload_of_120_containers_is_stored_and_pulled(device: NewDevice, payload: Any) -> None:
    """Brackets in strings are no containers."""
    mac = device("mac")
    op = mac.write("knowledge", payload)
    await mac.push()
    assert op_texts(await mac.pull()) == [op.text()]


async def test_a_seq_of_2_63_minus_1_can_be_read(device: NewDevice) -> None:
    mac = device("mac")
    (op,) = mac.facts(1)
    bare = setting("seq", 2**63 - 1)(op)
    refused(await offer(mac, bare), "chain_broken")


@pytest.mark.parametrize("name", ["x" * 512, "é" * 256, "\0" * 512])
async def test_a_device_id_may_have_512_bytes(device: NewDevice, name: str) -> None:
    longest = device(name)
    longest.facts(1)
    await longest.push()
    assert op_ids(await longest.pull()) == [longest.ops[0].op_id]


async def test_a_device_id_of_513_bytes_is_refused(device: NewDevice) -> None:
    longer = device("é" * 256 + "x")
    problem = refused(await longer.offer(longer.facts(1)), "unreadable_op")
    assert problem["path"] == "device_id"


@pytest.mark.parametrize("call", ["", "/ops", "/pull", "/ack"])
async def test_no_path_may_name_a_longer_device(device: NewDevice, call: str) -> None:
    longer = device("x" * 513)
    problem = refused(await longer.client.post(longer.path + call, content=b"{}"), "invalid_request")
    assert problem["path"] == "path.device"


async def test_fields_that_no_record_has_are_dropped_and_key_order_means_nothing(device: NewDevice) -> None:
    mac = device("mac")
    (op,) = mac.facts(1)
    record = dict(reversed({**op.to_json(), "colour": "red"}.items()))
    assert read(await offer(mac, orjson.dumps(record))) == {"accepted": 1, "deduped": 0}
    assert op_texts(await mac.pull()) == [op.text()]


async def test_a_missing_prev_is_null(device: NewDevice) -> None:
    mac = device("mac")
    (op,) = mac.facts(1)
    assert read(await offer(mac, without("prev")(op))) == {"accepted": 1, "deduped": 0}
    assert op_texts(await mac.pull()) == [op.text()]


async def test_payloads_come_back_with_sorted_keys_and_the_same_id(device: NewDevice) -> None:
    mac = device("mac")
    op = mac.write("knowledge", {"b": 1, "a": {"d": 2, "c": 3}})
    record = {**op.to_json(), "payload": {"b": 1, "a": {"d": 2, "c": 3}}}
    text = orjson.dumps(record, option=orjson.OPT_INDENT_2)
    assert read(await offer(mac, text)) == {"accepted": 1, "deduped": 0}
    assert canonical(op.payload) in op_texts(await mac.pull())[0]
    assert op_texts(await mac.pull()) == [op.text()]
