"""One envelope under one key (car-sync.md §13a.1, §13a.4; server.md §9)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldpoint.canonical import Json
from foldpoint.envelope import is_envelope
from foldpoint.seal import AudienceKey, Envelope, Reason, SealError, open_envelope, read_envelope, seal_payload
from foldpoint.seal.box import encrypt
from tests.fixtures.ops import THOROUGH, json_values, odd_texts
from tests.fixtures.vectors import text

keys = st.binary(min_size=32, max_size=32)
nonces = st.binary(min_size=12, max_size=12)
epochs = st.integers(0, 3) | st.just(2**64 - 1)
audience_keys = keys.map(AudienceKey) | st.builds(AudienceKey.of_org, keys, odd_texts.map("org:".__add__), epochs)

KEY = AudienceKey(bytes(32))
ACME = AudienceKey.of_org(bytes(32), "org:acme", 1)
SEALED = seal_payload({"id": "a"}, KEY, bytes(range(12)))


def fails(envelope: Envelope, key: AudienceKey = KEY) -> Reason:
    with pytest.raises(SealError) as error:
        open_envelope(envelope, key)
    return error.value.reason


@THOROUGH
@given(payload=json_values, key=audience_keys, nonce=nonces)
def test_what_is_sealed_opens_to_the_same(payload: Json, key: AudienceKey, nonce: bytes) -> None:
    envelope = seal_payload(payload, key, nonce).to_json()
    assert is_envelope(envelope)
    assert ("kid" in envelope) is (key.kid is not None)
    assert text(open_envelope(read_envelope(envelope), key)) == text(payload)


@THOROUGH
@given(payload=json_values, key=audience_keys, nonce=nonces, data=st.data())
def test_any_changed_byte_fails(payload: Json, key: AudienceKey, nonce: bytes, data: st.DataObject) -> None:
    envelope = seal_payload(payload, key, nonce)
    field = data.draw(st.sampled_from(["nonce", "ct"]))
    changed = bytearray.fromhex(getattr(envelope, field))
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(1, 255))
    assert fails(read_envelope(envelope.to_json() | {field: changed.hex()}), key) is Reason.WRONG_KEY


@THOROUGH
@given(key=audience_keys, other=audience_keys)
def test_only_its_own_key_opens_it(key: AudienceKey, other: AudienceKey) -> None:
    if key != other:
        assert fails(seal_payload("secret", key, bytes(12)), other) is Reason.WRONG_KEY


def test_an_envelope_of_an_org_is_bound_to_audience_and_epoch() -> None:
    sealed = seal_payload({}, ACME, bytes(12))
    for other in (AudienceKey.of_org(bytes(32), "org:acm", 1), AudienceKey.of_org(bytes(32), "org:acme", 2), KEY):
        assert fails(sealed, other) is Reason.WRONG_KEY


@pytest.mark.parametrize(
    "wrong",
    [
        {"nonce": 1},
        {"nonce": None},
        {"ct": []},
        {"kid": -1},
        {"kid": 1.0},
        {"kid": "1"},
        {"kid": True},
        {"kid": 2**64},
        {"car_enc": "aes"},
    ],
)
def test_an_envelope_that_no_device_reads(wrong: dict[str, Any]) -> None:
    with pytest.raises(SealError) as error:
        read_envelope(SEALED.to_json() | wrong)
    assert error.value.reason is Reason.MALFORMED


@pytest.mark.parametrize("payload", [None, [], "chacha20poly1305", {}, {"car_enc": "chacha20poly1305", "ct": "00"}])
def test_what_is_no_envelope_is_not_read(payload: Json) -> None:
    with pytest.raises(SealError):
        read_envelope(payload)


def test_further_keys_and_a_kid_of_null_are_dropped() -> None:
    """A null is a missing field (car-sync.md §1.9); the crate opens such an envelope."""
    read = read_envelope({**SEALED.to_json(), "kid": None, "id": "planted", "tombstone": True})
    assert read == SEALED
    assert read.to_json().keys() == {"car_enc", "nonce", "ct"}
    assert Envelope("", "", 0).to_json()["kid"] == 0


@pytest.mark.parametrize(
    "changed",
    [
        {"nonce": SEALED.nonce[:-2]},
        {"nonce": SEALED.nonce + "00"},
        {"nonce": SEALED.nonce[:-1]},
        {"ct": SEALED.ct + " "},
        {"ct": "0x" + SEALED.ct},
        {"ct": "0+" + SEALED.ct},
        {"ct": "-0" + SEALED.ct},
        {"ct": "٣٣" + SEALED.ct},
    ],
)
def test_what_is_not_hex_does_not_open(changed: dict[str, Json]) -> None:
    assert fails(read_envelope(SEALED.to_json() | changed)) is Reason.MALFORMED


def test_hex_reads_as_the_crate_reads_it() -> None:
    for nonce in (SEALED.nonce.upper(), SEALED.nonce.replace("0", "+", 1)):
        assert nonce != SEALED.nonce
        assert open_envelope(SEALED._replace(nonce=nonce), KEY) == {"id": "a"}


@pytest.mark.parametrize("plaintext", [b"", b"1e400", b"[1]]", b"[" * 128 + b"]" * 128, b"\xff", b'"\\ud800"', b"NaN"])
def test_what_opens_but_is_no_json(plaintext: bytes) -> None:
    sealed = Envelope(bytes(12).hex(), encrypt(KEY.key, bytes(12), plaintext).hex())
    with pytest.raises(SealError) as error:
        open_envelope(sealed, KEY)
    assert error.value.reason is Reason.UNREADABLE
    assert (error.value.__cause__, error.value.__suppress_context__) == (None, True)


def test_a_key_does_not_show() -> None:
    assert "\\x07" not in repr(AudienceKey(b"\7" * 32))
