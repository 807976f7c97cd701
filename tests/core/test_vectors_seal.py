from typing import Any

from foldpoint.op import op_from_json
from foldpoint.seal import Keyring, Outcome, open_envelope, opened_payload, read_envelope, seal_payload
from tests.fixtures.vectors import golden, story, text

DECRYPTS_TO = story("op_id.json/sealed/decrypts_to")
PLAINTEXT = story("op_id.json/sealed/plaintext")
KEY_HEX = story("op_id.json/sealed/key_hex")


@golden("op_id.json/sealed/op")
def test_sealed_op_opens_and_seals_again_to_the_same(case: Any) -> None:
    keyring = Keyring.read_audiences({"personal": KEY_HEX})
    op = op_from_json(case)
    opening = opened_payload(op, keyring)
    assert opening.outcome is Outcome.OPENED
    assert text(opening.payload) == text(DECRYPTS_TO) == text(PLAINTEXT)
    folded = opening.folded(op)
    assert folded is not None
    assert (folded.op_id, folded.fold_key) == (op.op_id, "id:secret")
    key, envelope = keyring.newest_key("personal"), read_envelope(op.payload)
    again = seal_payload(PLAINTEXT, key, bytes.fromhex(envelope.nonce))
    assert text(again.to_json()) == text(case["payload"])
    assert text(open_envelope(again, key)) == text(PLAINTEXT)
