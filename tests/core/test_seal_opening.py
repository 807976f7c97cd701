"""What the state folds of a sealed op (server.md §6, §9)."""

from hypothesis import given

from foldpoint.canonical import Json
from foldpoint.device_log import DeviceLog
from foldpoint.fold import fold
from foldpoint.op import Op, make_op
from foldpoint.seal import Keyring, Opening, Outcome, opened_payload, seal_payload
from foldpoint.state import state_hash
from tests.fixtures.ops import THOROUGH, logs
from tests.fixtures.vectors import text

MASTER = bytes([7]) * 32
KEYRING = Keyring(MASTER, {"org:acme": {1: bytes([1]) * 32, 2: bytes([2]) * 32}})
STRANGER = Keyring(bytes(32), {"org:acme": {1: bytes(32), 3: bytes(32)}})


def sealed(payload: Json, scope: str, keyring: Keyring, nonce: bytes = bytes(12)) -> dict[str, Json]:
    return seal_payload(payload, keyring.newest_key(scope), nonce).to_json()


def opening(payload: Json, scope: str = "personal", keyring: Keyring = KEYRING) -> Opening:
    return opened_payload(DeviceLog("mac").append(1, scope, "knowledge", payload), keyring)


def test_an_opened_payload_is_folded_whatever_rides_beside_the_envelope() -> None:
    for scope in ("personal", "shared:acme", "shared:other"):
        envelope = sealed({"id": "a"}, scope, KEYRING)
        assert opening({**envelope, "id": "planted"}, scope) == (Outcome.OPENED, {"id": "a"})


def test_a_closed_envelope_is_folded_without_its_further_keys() -> None:
    envelope = sealed({"id": "a"}, "personal", STRANGER)
    assert opening({**envelope, "id": "planted", "tombstone": True}) == (Outcome.FAILS, envelope)
    assert opening({**envelope, "kid": 4, "id": "planted"}) == (Outcome.FAILS, {**envelope, "kid": 4})


def test_an_unknown_epoch_lacks_a_key_and_a_missing_one_fails() -> None:
    envelope = sealed({"id": "a"}, "shared:acme", STRANGER)
    assert opening(envelope, "shared:acme") == (Outcome.LACKS_KEY, envelope)
    assert opening({**envelope, "kid": 1}, "shared:acme") == (Outcome.FAILS, {**envelope, "kid": 1})
    bare = sealed({"id": "a"}, "shared:acme", Keyring(MASTER))
    assert opening(bare, "shared:acme") == (Outcome.FAILS, bare)
    assert opening(bare, "shared:acme", Keyring(MASTER)) == (Outcome.OPENED, {"id": "a"})


def test_with_a_passphrase_only_an_envelope_of_an_epoch_lacks_the_orgs_key() -> None:
    """The key from the master is tried, as a device does; that it fails does not make the envelope a wrong one."""
    master_alone = Keyring(MASTER)
    envelope = sealed({"id": "a"}, "shared:acme", KEYRING)
    assert opening(envelope, "shared:acme", master_alone) == (Outcome.LACKS_KEY, envelope)
    assert opening({**envelope, "ct": "00"}, "shared:acme", master_alone).outcome is Outcome.LACKS_KEY
    assert opening({**envelope, "ct": "0"}, "shared:acme", master_alone).outcome is Outcome.FAILS
    stamped = {**sealed({"id": "a"}, "shared:acme", master_alone), "kid": 1}
    assert opening(stamped, "shared:acme", master_alone) == (Outcome.OPENED, {"id": "a"})


def test_an_audience_without_a_key_lacks_one() -> None:
    envelope = sealed({"id": "a"}, "personal", KEYRING)
    keyring = Keyring(audiences={"org:acme": bytes(32)})
    assert opening(envelope, keyring=keyring) == (Outcome.LACKS_KEY, envelope)


def test_an_envelope_of_another_audience_fails() -> None:
    for scope, other in (("personal", "shared:x"), ("shared:x", "personal"), ("shared:acme", "personal")):
        assert opening(sealed({}, scope, KEYRING), other).outcome is Outcome.FAILS


def test_what_no_device_reads_is_left_out() -> None:
    envelope = sealed({"id": "a"}, "personal", KEYRING)
    wrong: list[Json] = [
        {**envelope, "nonce": 1},
        {**envelope, "ct": None},
        {**envelope, "kid": "1"},
        {"id": "a"},
        None,
    ]
    for payload in wrong:
        op = DeviceLog("mac").append(1, "personal", "knowledge", payload)
        assert opened_payload(op, KEYRING) == (Outcome.LEFT_OUT, None)
        assert opened_payload(op, KEYRING).folded(op) is None


def test_a_payload_of_null_is_one() -> None:
    op = DeviceLog("mac").append(1, "personal", "knowledge", sealed(None, "personal", KEYRING))
    result = opened_payload(op, KEYRING)
    folded = result.folded(op)
    assert result == (Outcome.OPENED, None)
    assert folded is not None
    assert (folded.payload, folded.payload_text, folded.op_id) == (None, b"null", op.op_id)


@THOROUGH
@given(log=logs())
def test_the_state_of_an_opened_log_is_that_of_its_payloads(log: list[Op]) -> None:
    plain, opened = [], []
    for index, op in enumerate(log):
        payload = sealed(op.payload, op.scope, KEYRING, index.to_bytes(12, "little"))
        closed = make_op(op.device_id, op.seq, op.prev, op.hlc, op.scope, op.surface, payload)
        result = opened_payload(closed, KEYRING)
        folded = result.folded(closed)
        assert folded is not None
        assert text(folded.payload) == text(op.payload)
        opened.append(folded)
        plain.append(Opening(Outcome.OPENED, op.payload).folded(closed))
    assert state_hash(fold(opened)) == state_hash(fold(op for op in plain if op is not None))
