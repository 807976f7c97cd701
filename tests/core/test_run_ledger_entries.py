"""What of the registry belongs to a run, and what is skipped (server.md §8)."""

from collections.abc import Mapping

import pytest

from foldpoint.canonical import Json, canonical
from foldpoint.hlc import Hlc
from foldpoint.projection import author_of, payload_id
from foldpoint.run_ledger.entry import Entry, Item, Seal, entry_payload, read_item, seal_payload
from foldpoint.run_ledger.wire import RecordedEvent
from foldpoint.state import Record
from tests.core.run_ledger_records import RUN, STARTS

START = RecordedEvent(0, 7, STARTS[0])


def read(payload: Mapping[str, Json], device: str = "phone", run_id: str = RUN) -> Item | None:
    return read_item(Record(Hlc(1, 0, device), "op-1", canonical({**payload})), run_id)


def signed(content: dict[str, Json], author: str = "phone") -> dict[str, Json]:
    return {**content, "id": payload_id(author, content)}


def test_the_id_is_the_hash_of_author_and_content() -> None:
    #: Of `["phone",{"n":1.0,"run_id":"r"}]`.
    expected = "5c69c8c6e76310a43595824037ff03a0efc61c683f8cc6d870f410977d98bdce"
    assert payload_id("phone", {"id": "whatever", "run_id": "r", "n": 1.0}) == expected
    assert payload_id("phone", {"n": 1.0, "run_id": "r"}) == expected
    assert payload_id("phone", {"n": 1, "run_id": "r"}) != expected
    assert payload_id("laptop", {"n": 1.0, "run_id": "r"}) != expected


@pytest.mark.parametrize(
    ("device", "author"),
    [
        ("phone", "phone"),
        ("hosted-worker-0a1b2c3d", "worker"),
        ("hosted-a-b-0a1b2c3d", "a-b"),
        ("hosted-worker-0A1B2C3D", "hosted-worker-0A1B2C3D"),
        ("hosted--0a1b2c3d", "hosted--0a1b2c3d"),
        ("hosted-worker-0a1b2c3d\n", "hosted-worker-0a1b2c3d\n"),
        (f"hosted-{'w' * 65}-0a1b2c3d", f"hosted-{'w' * 65}-0a1b2c3d"),
    ],
)
def test_a_hosted_chain_speaks_for_its_writer(device: str, author: str) -> None:
    assert author_of(device) == author


def test_a_record_is_read_from_its_author_only() -> None:
    payload = entry_payload("worker", START)
    entry = read(payload, "hosted-worker-0a1b2c3d")
    assert isinstance(entry, Entry)
    assert (entry.place.id, entry.seq, entry.record) == (payload["id"], 0, START)
    assert read(payload, "hosted-worker-ffffffff") is not None
    assert read(payload, "phone") is None


def test_a_seal_is_read_with_the_seqs_it_covers() -> None:
    seal = read(seal_payload("phone", RUN, 4, ("a", "b"), 3))
    assert isinstance(seal, Seal)
    assert (seal.first_seq, seal.seq, seal.winners, seal.epoch) == (3, 4, ("a", "b"), 3)


def test_notes_beside_the_record_are_nobodys_business() -> None:
    assert read(signed({"run_id": RUN, "record": START.to_json(), "source": {"line": 3}})) is not None


SEAL: dict[str, Json] = {"through_seq": 1, "winners": ["a"], "epoch": 0}


@pytest.mark.parametrize(
    "payload",
    [
        {**entry_payload("phone", START), "id": "another"},
        {**entry_payload("phone", START), "extra": 1},
        signed({"run_id": "run-2", "record": START.to_json()}),
        signed({"run_id": RUN, "record": {**START.to_json(), "event": {**START.event, "run_id": "run-2"}}}),
        signed({"run_id": RUN, "record": {**START.to_json(), "seq": -1}}),
        signed({"run_id": RUN, "record": START.to_json(), "seal": SEAL}),
        signed({"run_id": RUN}),
        signed({"run_id": RUN, "seal": {**SEAL, "winners": []}}),
        signed({"run_id": RUN, "seal": {**SEAL, "winners": ["a", "b", "c"]}}),
        signed({"run_id": RUN, "seal": {**SEAL, "winners": [1]}}),
        signed({"run_id": RUN, "seal": {**SEAL, "epoch": 1.0}}),
        signed({"run_id": RUN, "seal": {**SEAL, "note": 1}}),
        signed({"run_id": RUN, "seal": None}),
    ],
)
def test_what_cannot_be_read_is_skipped(payload: dict[str, Json]) -> None:
    assert read(payload) is None


@pytest.mark.parametrize("payload", [b"1", b"[]", b'{"car_enc":"v1","nonce":"","ct":""}'])
def test_any_payload_may_be_there(payload: bytes) -> None:
    assert read_item(Record(Hlc(1, 0, "phone"), "op-1", payload), RUN) is None
