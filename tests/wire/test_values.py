"""Payloads arrive, are stored, hashed and given back as the crate reads and writes them (car-sync.md §1).

R27, R28 and R29 as server.md §13 amends them: U+0000 and u64 are legal, duplicate payload keys keep the last,
payload bytes are hashed canonically.
"""

from typing import Any

import httpx
import pytest

from foldpoint.canonical import Json, canonical, read_json
from foldpoint.fold import fold
from foldpoint.op import make_op
from foldpoint.op_text import read_op
from foldpoint.state import state_hash
from tests.fixtures.devices import Device, NewDevice, checkpoint_text, collect, op_texts
from tests.fixtures.vectors import section, text
from tests.wire.answers import read, refused

NUL = {"v": "a\0b", "k\0": {"a": [{"b": [{"c\0": "\0"}]}]}, "literal": "\\u0000", "id": "\0"}
BIG = {"id": "big", "a": 2**53 + 1, "b": 2**63 - 1, "c": 2**63, "d": 2**64 - 1, "e": -(2**63)}


def as_written(device: Device, payload: str) -> bytes:
    """The text of the device's next op, with its payload as it is written here."""
    op = device.write("knowledge", read_json(payload.encode()))
    return op.head() + payload.encode() + b"}"


async def offer(device: Device, *elements: bytes) -> httpx.Response:
    return await device.client.post(f"{device.path}/ops", content=b"[" + b",".join(elements) + b"]")


async def test_R27_a_nul_is_kept_wherever_it_stands(device: NewDevice, scope: str) -> None:
    mac = device("m\0c")
    mac.say("x\0y", conversation="c\0", tool_use_id="\0")
    mac.write("knowledge", NUL)
    mac.write("registry:k\0", {"id": "\0", "v": NUL}, "shared:o\0g")
    mac.intend("r\0", "committed", agent="a\0")
    await mac.push()
    assert op_texts(await mac.pull()) == [op.text() for op in mac.ops]
    base = f"/v1/scopes/{scope}"
    (turn,) = read(await mac.client.get(f"{base}/transcript", params={"conversation": "c\0"}))["turns"]
    assert (turn["content"], turn["tool_use_id"], turn["hlc"]["device_id"]) == ("x\0y", "\0", "m\0c")
    (found,) = read(await mac.client.get(f"{base}/registries/k%00"))["records"]
    assert found["payload"] == mac.ops[2].payload
    asked = {"agent": "a\0", "run": "r\0"}
    assert read(await mac.client.get(f"{base}/committed-run", params=asked))["status"] == "committed"
    assert read(await mac.client.get(f"{base}/agents", params={"agent": "a\0"}))["fencing_epoch"] == 1
    await collect([mac])
    assert (await mac.client.get(f"/sync/{scope}/checkpoints/latest")).content == checkpoint_text(mac.ops)


async def test_R28_integers_of_64_bits_keep_their_value_and_larger_ones_are_doubles(
    device: NewDevice, scope: str
) -> None:
    mac = device("mac")
    written = '{"id":"large","y":18446744073709551616,"z":123456789012345678901234567890,"w":-9223372036854775809}'
    read(await offer(mac, mac.write("knowledge", BIG).text(), as_written(mac, written)))
    mac.pushed = 2
    mac.say("x", timestamp=2**64 - 1)
    mac.intend("r", "committed", epoch=2**64 - 1)
    await mac.push()
    assert op_texts(await mac.pull()) == [op.text() for op in mac.ops]
    large = b'{"id":"large","w":-9.223372036854776e+18,"y":1.8446744073709552e+19,"z":1.2345678901234568e+29}'
    assert canonical(mac.ops[1].payload) == large
    assert large in (await mac.client.get(f"/v1/scopes/{scope}/log/knowledge")).content.replace(b" ", b"")
    (turn,) = read(await mac.client.get(f"/v1/scopes/{scope}/transcript", params={"conversation": "c"}))["turns"]
    assert turn["timestamp"] == 2**64 - 1
    found = read(await mac.client.get(f"/v1/scopes/{scope}/committed-run", params={"agent": "ada", "run": "r"}))
    assert found["record"]["payload"]["epoch"] == 2**64 - 1
    await collect([mac])
    assert (await mac.client.get(f"/sync/{scope}/checkpoints/latest")).content == checkpoint_text(mac.ops)


async def test_R29_every_golden_value_is_hashed_and_given_back_in_its_canonical_form(
    device: NewDevice, scope: str
) -> None:
    """The texts as they stand in the vectors, whatever their spaces, key order and digits."""
    mac = device("mac")
    cases = [case for case in section("canonical.json/cases") if case["canonical"] is not None]
    stored = [case for case in cases if case["canonical"].count("[") + case["canonical"].count("{") <= 120]
    assert len(cases) - len(stored) < 5
    for case in stored:
        assert text(read_json(case["text"].encode())) == case["canonical"]
    elements = [as_written(mac, case["text"]) for case in stored]
    assert read(await offer(mac, *elements)) == {"accepted": len(stored), "deduped": 0}
    pulled = op_texts(await mac.pull())
    assert [read_op(op).payload_text.decode() for op in pulled] == [case["canonical"] for case in stored]
    assert pulled == [op.text() for op in mac.ops]
    state = await mac.client.get(f"/v1/scopes/{scope}/state/hash")
    assert read(state)["state_hash"] == state_hash(fold(mac.ops))


async def test_R29_what_the_crate_cannot_parse_is_refused(device: NewDevice) -> None:
    mac = device("mac")
    head = mac.write("knowledge", 1).head()
    refused_texts = [case["text"] for case in section("canonical.json/cases") if case["canonical"] is None]
    assert len(refused_texts) > 30
    for written in refused_texts:
        response = await offer(mac, head + written.encode() + b"}")
        assert response.json().get("code") == "unreadable_op", written


async def test_R29_values_that_python_calls_equal_are_different_payloads(device: NewDevice) -> None:
    mac, copy = device("mac"), device("mac")
    payloads: list[Json] = [1, 1.0, True, 0, 0.0, False, "1", None, [], {}]
    for payload in payloads:
        mac.write("run", payload)
    await mac.push()
    assert len({op.op_id for op in mac.ops}) == len(mac.ops)
    copy.write("run", 1.0)
    refused(await copy.offer(copy.ops), "chain_fork")
    one = mac.ops[0]
    swapped = one.head() + b"1.0}"
    refused(await offer(mac, swapped), "chain_broken")


async def test_R29_of_duplicate_payload_keys_the_last_stays(device: NewDevice) -> None:
    mac = device("mac")
    element = as_written(mac, '{"a":1,"b":2,"a":3}')
    read(await offer(mac, element))
    assert op_texts(await mac.pull()) == [mac.ops[0].text()]
    assert b'"payload":{"a":3,"b":2}' in mac.ops[0].text()


#: Op records that the crate reads and a Foldpoint refuses, by name.
REFUSED_HERE = {
    "surface registry array form": "a record as a positional array, which nobody emits (car-sync.md §1.10)",
    "array form": "the same",
    "array form hlc": "the same",
    "seq max": "seq is kept in signed 64 bits",
    "wall u64 max": "wall_ms is kept in signed 64 bits",
    "payload nested 126 arrays": "a payload may nest 120",
}
WIRE = [case for case in section("wire.json/cases") if case["name"] != "empty"]


def outcome_of(case: Any) -> str:
    if not case["ok"] or case["name"] in REFUSED_HERE:
        return "unreadable_op"
    # an empty prev reads and hashes like none, and is still one, which the first op must not have
    return "stored" if case["id_valid"] and case["name"] != "prev empty string" else "chain_broken"


@pytest.mark.parametrize("case", WIRE, ids=[case["name"] for case in WIRE])
async def test_golden_op_records_on_the_wire(device: NewDevice, case: Any) -> None:
    mac = device("d1")
    response = await offer(mac, case["text"].encode())
    outcome = outcome_of(case)
    if outcome == "stored":
        assert read(response) == {"accepted": 1, "deduped": 0}
        assert op_texts(await mac.pull()) == [case["reemitted"].encode()]
    else:
        refused(response, outcome)


async def test_the_texts_of_long_ids_and_odd_places_come_back(device: NewDevice, scope: str) -> None:
    mac = device("mac")
    for surface, tag in (("registry:" + "k" * 70_000, "shared:" + "o" * 70_000), ("registry:", "shared:")):
        mac.write(surface, {"id": "x" * 70_000}, tag)
    await mac.push()
    assert op_texts(await mac.pull()) == [op.text() for op in mac.ops]
    read(await mac.client.put(f"/sync/{scope}/checkpoints", content=checkpoint_text(mac.ops)))
    first = make_op("mac", 0, None, mac.ops[0].hlc, "personal", "run", None)
    refused(await mac.offer([first]), "chain_fork")
