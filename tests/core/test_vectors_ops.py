from hashlib import sha256
from typing import Any

from foldpoint.canonical import read_json
from foldpoint.envelope import is_envelope
from foldpoint.op import make_op, op_from_json, read_hlc, read_scope, stable_key
from foldpoint.surfaces import read_surface
from tests.fixtures.vectors import golden, story, text

IS_ENVELOPE = story("op_id.json/sealed/is_envelope")
STABLE_KEY = story("op_id.json/sealed/stable_key")


def check_content_address_and_keys(case: Any) -> None:
    hlc = read_hlc(case["hlc"])
    scope, surface = read_scope(case["scope"]), read_surface(case["surface"])
    payload = read_json(case["payload_text"].encode())
    op = make_op(hlc.device_id, case["seq"], case["prev"], hlc, scope, surface, payload)
    assert op.payload_text.decode() == case["canonical_payload"]
    assert op.op_id == case["op_id"] == "op-" + sha256(case["hash_input_utf8"].encode()).hexdigest()[:32]
    assert stable_key(op.payload, op.payload_text) == case["stable_key"]
    assert op.fold_key == case["fold_key"]
    assert text(op.to_json()) == text(case["record"])


@golden("op_id.json/worked_example")
def test_worked_example(case: Any) -> None:
    check_content_address_and_keys(case)


@golden("op_id.json/cases")
def test_content_address_and_keys(case: Any) -> None:
    check_content_address_and_keys(case)


@golden("op_id.json/chain")
def test_op_of_a_chain_recomputes(case: Any) -> None:
    op = op_from_json(case)
    assert op.computed_id() == op.op_id
    assert text(op.to_json()) == text(case)


@golden("op_id.json/sealed/op")
def test_sealed_op_is_keyed_by_its_envelope(case: Any) -> None:
    op = op_from_json(case)
    assert op.computed_id() == op.op_id
    assert is_envelope(op.payload) is IS_ENVELOPE
    assert op.fold_key == STABLE_KEY


@golden("op_id.json/sealed/is_envelope_cases")
def test_envelope_is_recognised(case: Any) -> None:
    payload, expected = case
    assert is_envelope(payload) is expected
