"""Org keys wrapped for members (car-sync.md §13b)."""

from dataclasses import fields, replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from foldpoint.canonical import Unreadable
from foldpoint.seal import Reason, SealError
from foldpoint.seal.keys import exchange_identity, issued_master, signing_identity
from foldpoint.seal.signature import is_signed
from foldpoint.seal.wraps import Grant, WrappedOrgKey, org_keys_of, read_wrapped, unwrap_org_key, wrap_org_key
from tests.fixtures.ops import THOROUGH, odd_texts

ADA = exchange_identity(issued_master(b"ada's secret", "ada"), "ada")
GRANTER = signing_identity(issued_master(b"granter's secret", "granter"), "granter")
TRUSTED = GRANTER.public_key().public_bytes_raw()
ORG_KEY = bytes(range(32))
GRANT = Grant("acme", 1, "ada", "granter")


def wrapped(
    grant: Grant = GRANT,
    signer: Ed25519PrivateKey = GRANTER,
    org_key: bytes = ORG_KEY,
    recipient_key: bytes = ADA.public_key().public_bytes_raw(),
) -> WrappedOrgKey:
    ephemeral = X25519PrivateKey.from_private_bytes(bytes([5]) * 32)
    return wrap_org_key(org_key, grant, recipient_key, signer=signer, ephemeral=ephemeral, nonce=bytes(12))


def refused(wrap: WrappedOrgKey, identity: X25519PrivateKey = ADA, user: str = "ada") -> Reason:
    with pytest.raises(SealError) as error:
        unwrap_org_key(wrap, identity, user, [TRUSTED])
    return error.value.reason


@THOROUGH
@given(
    org_key=st.binary(min_size=32, max_size=32),
    org=st.from_regex(r"[A-Za-z0-9._-]+", fullmatch=True),
    epoch=st.integers(0, 2**64 - 1),
    user=odd_texts,
    publisher=odd_texts,
)
def test_a_wrap_gives_its_member_the_key(org_key: bytes, org: str, epoch: int, user: str, publisher: str) -> None:
    wrap = wrapped(Grant(org, epoch, user, publisher), org_key=org_key)
    assert read_wrapped(wrap.to_json()) == wrap
    assert unwrap_org_key(wrap, ADA, user, [bytes(32), TRUSTED]) == org_key


CHANGES: list[tuple[dict[str, Any], Reason]] = [
    ({"org": "acme2"}, Reason.UNTRUSTED),
    ({"epoch": 2}, Reason.UNTRUSTED),
    ({"publisher": "ada"}, Reason.UNTRUSTED),
    ({"ephemeral_pub": TRUSTED.hex()}, Reason.UNTRUSTED),
    ({"recipient_pub": TRUSTED.hex()}, Reason.UNTRUSTED),
    ({"envelope": {**wrapped().to_json()["envelope"], "x": 1}}, Reason.UNTRUSTED),  # type: ignore[dict-item]
    ({"envelope": None}, Reason.UNTRUSTED),
    ({"signature": "00" * 64}, Reason.UNTRUSTED),
    ({"signature": "00" * 63}, Reason.MALFORMED),
    ({"recipient_pub": "00"}, Reason.MALFORMED),
    ({"ephemeral_pub": "not hex"}, Reason.MALFORMED),
    ({"org": "acmé"}, Reason.MALFORMED),
    ({"org": "acme\n"}, Reason.MALFORMED),
    ({"org": ""}, Reason.MALFORMED),
    ({"car_wrap": "org-key-wrap/v1"}, Reason.MALFORMED),
]


@pytest.mark.parametrize(("change", "reason"), CHANGES)
def test_a_changed_wrap_is_refused(change: dict[str, Any], reason: Reason) -> None:
    assert refused(replace(wrapped(), **change)) is reason


def test_the_recipient_is_a_label() -> None:
    assert unwrap_org_key(replace(wrapped(), recipient="eve"), ADA, "ada", [TRUSTED]) == ORG_KEY


def test_a_wrap_is_for_one_user_and_one_identity() -> None:
    eve = exchange_identity(issued_master(b"eve's secret", "eve"), "eve")
    assert refused(wrapped(), user="eve") is Reason.UNTRUSTED
    assert refused(wrapped(), identity=eve) is Reason.WRONG_KEY


def test_only_a_trusted_granter_grants() -> None:
    """Anybody can wrap a key of his own for a member, whose public key is public."""
    eve = signing_identity(issued_master(b"eve's secret", "eve"), "eve")
    assert refused(wrapped(signer=eve)) is Reason.UNTRUSTED
    with pytest.raises(SealError):
        unwrap_org_key(wrapped(), ADA, "ada", [])


@pytest.mark.parametrize("point", [bytes(32), bytes([1]) + bytes(31)])
def test_a_public_key_that_shares_no_secret_is_refused(point: bytes) -> None:
    with pytest.raises(SealError) as error:
        wrapped(recipient_key=point)
    assert error.value.reason is Reason.MALFORMED


def test_nobody_signs_under_a_key_that_is_no_secrets() -> None:
    """With the neutral point as the public key, R = B and s = 1 verify for every message."""
    neutral, base = bytes([1]) + bytes(31), bytes([0x58]) + bytes([0x66]) * 31
    forged = base + bytes([1]) + bytes(31)
    Ed25519PublicKey.from_public_bytes(neutral).verify(forged, b"any message")
    assert not is_signed(b"any message", forged, neutral)


@pytest.mark.parametrize("grant", [Grant("a b", 1, "", ""), Grant("", 1, "", ""), Grant("acme", 2**64, "", "")])
def test_what_cannot_be_granted(grant: Grant) -> None:
    with pytest.raises(SealError):
        wrapped(grant)


def test_an_orgs_key_has_32_bytes() -> None:
    with pytest.raises(SealError):
        wrapped(org_key=bytes(31))


def test_every_epoch_that_unwraps_counts_and_nothing_else() -> None:
    eve = signing_identity(issued_master(b"eve's secret", "eve"), "eve")
    epochs = [Grant("acme", epoch, "ada", "granter") for epoch in (3, 2, 1)]
    wraps = [
        wrapped(Grant("other", 9, "ada", "granter")),
        wrapped(Grant("acme", 4, "eve", "granter")),
        wrapped(epochs[0], signer=eve, org_key=bytes(32)),
        *(wrapped(grant, org_key=bytes([grant.epoch]) * 32) for grant in epochs),
    ]
    expected = {epoch: bytes([epoch]) * 32 for epoch in (1, 2, 3)}
    assert org_keys_of(wraps, "acme", ADA, "ada", [TRUSTED]) == expected


@pytest.mark.parametrize("name", [field.name for field in fields(WrappedOrgKey)])
def test_every_field_of_a_wrap_is_needed_and_typed(name: str) -> None:
    value = wrapped().to_json()
    wrong = [{field: value[field] for field in value if field != name}]
    if name != "envelope":
        wrong += [value | {name: None}, value | {name: 1.0}]
    for unreadable in wrong:
        with pytest.raises(Unreadable) as error:
            read_wrapped(unreadable)
        assert error.value.path == name
    assert read_wrapped({**value, "later": 1}).to_json() == value


@pytest.mark.parametrize("value", [None, [], "wrap"])
def test_what_is_no_wrap(value: Any) -> None:
    with pytest.raises(Unreadable):
        read_wrapped(value)
