"""What the crate sealed, wrapped and derived (car-sync 0.60.0, run once with random nonces), against ours."""

from typing import Any

import pytest

from foldpoint.canonical import Json
from foldpoint.seal import Keyring, open_envelope, read_envelope
from foldpoint.seal.keys import exchange_identity, issued_master, passphrase_master, signing_identity
from foldpoint.seal.wraps import org_keys_of, read_wrapped, unwrap_org_key
from tests.fixtures.vectors import text

PAYLOAD: Json = {"id": "x", "v": [1, 1.0, 18446744073709551615, -0.0, "é\0😀"]}
ADA, GRANTER = "acct-1", "granter é"
ADA_MASTER = passphrase_master("correct horse é 😀", ADA)
GRANTER_MASTER = issued_master(bytes([9]) * 40, GRANTER)
ADA_EXCHANGE = "2dcee666e4c8addc40f22aba5bce563fc0e8c957b223fdccb462f251ba81e048"
GRANTER_SIGNING = "d7763788ba604248ee38031e77fde3af58259e46fc16ad20ea99323031031552"
ACME = Keyring.from_org_keys("acme", {1: bytes([1]) * 32, 2: bytes([2]) * 32})

ENVELOPES = {
    "passphrase, personal": (
        Keyring(ADA_MASTER),
        "personal",
        {
            "car_enc": "chacha20poly1305",
            "nonce": "ca3a614105f6356ee59baeb0",
            "ct": "e47c807dac8eacce9021f18a6c2cd9e94ca3a66405e69a5e9ec4b6a6f3ab52bd28d3785e0313fdecabe9e8e05bf5b908"
            "6b67377fee1fd3593e9476fe7a920a67c3e599e255ed2112c02b6df979b7c8",
        },
    ),
    "passphrase, org": (
        Keyring(ADA_MASTER),
        "shared:acme",
        {
            "car_enc": "chacha20poly1305",
            "nonce": "22bbc24abe22a773a7af4cb3",
            "ct": "47ca261668bef2de2c63e5b6b43ada156a07ff6122f385b159a01b63112218ac5d38f0fdb1f39e56392138c659071b5a"
            "638228997fcbb9239d8034c151ebdd66f357d2168464908e4bc0dd3fd37a52",
        },
    ),
    "issued secret, personal": (
        Keyring(GRANTER_MASTER),
        "personal",
        {
            "car_enc": "chacha20poly1305",
            "nonce": "16c0dc3d7ec2adb905f9a11f",
            "ct": "3e7158fa8aa8741f153c71ee16e0d4b7a0ab435f2f3193fd1552fe35375f29899bae85d78d4bf57ce72f68f42d647b06"
            "9a27ff2d972ec99ff4cd56d23b5b4d0a62220004585188b0d5f9cbb45ba1d7",
        },
    ),
    "org key, epoch 1": (
        ACME,
        "shared:acme",
        {
            "car_enc": "chacha20poly1305",
            "nonce": "e1d4df73bd69b60dcdf38040",
            "ct": "6cc9285449e7ad821fe03795ccdb25c66325b7cec60909f1c7b96c7183a8c0448b2048290cd275f4fd3ab8ec2079255d"
            "8276ea1a694dc486645d12464a7c130f9dd54dc5de5acc52d2462cccabaa6b",
            "kid": 1,
        },
    ),
    "org key, epoch 2": (
        ACME,
        "shared:acme",
        {
            "car_enc": "chacha20poly1305",
            "nonce": "f71de4e6ebf3b8774c9d7d6d",
            "ct": "3c7a9ca77ea0816c789ef97987c0fd17241be2534255c1fc35f87dd1d77ddb2f88c6112e0cfb9810d73d74ce41ad591a"
            "d325d2e31709c9b04f2290dca8ee3de414c03a2570bf022ffb2817011f809c",
            "kid": 2,
        },
    ),
}

WRAP: dict[str, Json] = {
    "car_wrap": "org-key-wrap/v2",
    "org": "acme",
    "epoch": 2,
    "recipient": ADA,
    "publisher": GRANTER,
    "ephemeral_pub": "fc9d89b779afa56c5607452932b14a31f30b77f68eb9bb09c2107d4a87331e17",
    "recipient_pub": ADA_EXCHANGE,
    "envelope": {
        "car_enc": "chacha20poly1305",
        "nonce": "fcc4ed37499d7196e851123d",
        "ct": "39a82518c3257e34341ab7498baa20daac260878a05bcebef44db878384ec501ba2e81f0c9c64db3afb02921bfa9f8a1"
        "b471abd2f2f1ec56fea094cc023537fa61bfa8ea52146e733f86cbc42f378f639f32105e0f02dbba21e85300",
    },
    "signature": "df901175fa8a83c6a10cae4e13eeec9ad0ece172dcd8695351e514bf56493497e70d9beb4f18779e9d2e00f24a198e4c"
    "999ad4d2282f5fef3b0d41f7b11d050c",
}


@pytest.mark.parametrize(("keyring", "scope", "envelope"), ENVELOPES.values(), ids=ENVELOPES)
def test_what_a_device_sealed_opens(keyring: Keyring, scope: str, envelope: dict[str, Any]) -> None:
    read = read_envelope(envelope)
    assert text(open_envelope(read, keyring.keys_for(scope, read.kid)[0])) == text(PAYLOAD)
    assert text(read.to_json()) == text(envelope)


def test_an_identity_is_what_a_device_publishes() -> None:
    assert exchange_identity(ADA_MASTER, ADA).public_key().public_bytes_raw().hex() == ADA_EXCHANGE
    assert signing_identity(GRANTER_MASTER, GRANTER).public_key().public_bytes_raw().hex() == GRANTER_SIGNING


def test_what_a_granter_wrapped_unwraps() -> None:
    wrapped, identity, trusted = read_wrapped(WRAP), exchange_identity(ADA_MASTER, ADA), bytes.fromhex(GRANTER_SIGNING)
    assert text(wrapped.to_json()) == text(WRAP)
    assert unwrap_org_key(wrapped, identity, ADA, [trusted]) == bytes([2]) * 32
    assert org_keys_of([wrapped], "acme", identity, ADA, [trusted]) == {2: bytes([2]) * 32}
