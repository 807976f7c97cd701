"""The keys of a scope, and which of them opens what (server.md §9, §11)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldpoint.canonical import Json
from foldpoint.seal import Keyring, Reason, SealError
from foldpoint.seal.keys import audience_key, passphrase_master
from tests.fixtures.ops import THOROUGH, odd_texts

MASTER, ONE, TWO = bytes([7]) * 32, bytes([1]) * 32, bytes([2]) * 32

keys = st.binary(min_size=32, max_size=32)
epochs = st.integers(0, 2**64 - 1) | st.integers(0, 3)
held = keys | st.dictionaries(epochs, keys, min_size=1, max_size=3)
audiences = st.dictionaries(odd_texts.map("org:".__add__), held, max_size=3)
unclear = st.dictionaries(
    odd_texts.map("org:".__add__), st.dictionaries(epochs, keys, min_size=1, max_size=3), max_size=2
)
keyrings = st.builds(
    lambda master, orgs, personal, either: Keyring(master, orgs | personal).joined(Keyring(either=either)),
    st.none() | keys,
    audiences,
    st.just({}) | keys.map(lambda key: {"personal": key}),
    unclear,
)


def reason(keyring: Keyring, scope: str, kid: int | None) -> Reason:
    with pytest.raises(SealError) as error:
        keyring.keys_for(scope, kid)[0]
    return error.value.reason


@THOROUGH
@given(keyring=keyrings)
def test_its_text_reads_back(keyring: Keyring) -> None:
    assert Keyring.read(keyring.text()) == keyring
    assert Keyring.read(keyring.text()).text() == keyring.text()


@THOROUGH
@given(one=keyrings, two=keyrings)
def test_joined_keys_are_the_later_ones_and_what_they_leave(one: Keyring, two: Keyring) -> None:
    both = one.joined(two)
    assert both.joined(two) == both
    assert {*both.audiences, *both.either} == {*one.audiences, *one.either, *two.audiences, *two.either}
    assert both.master == (two.master or one.master)
    assert (Keyring().joined(one), one.joined(Keyring())) == (one, one)


def test_every_audience_has_its_key_from_the_master() -> None:
    keyring = Keyring.from_passphrase("secret", "ada")
    master = passphrase_master("secret", "ada")
    assert keyring == Keyring(master)
    assert keyring.keys_for("personal", None)[0].key == audience_key(master, "personal")
    assert keyring.keys_for("shared:acme", None)[0].key == audience_key(master, "org:acme")
    assert keyring.keys_for("shared:personal", None)[0].key == audience_key(master, "org:personal")
    assert keyring.newest_key("shared:").key == audience_key(master, "org:")


def test_without_epochs_no_kid_is_asked_for_and_none_is_bound() -> None:
    keyring = Keyring(MASTER, {"personal": ONE})
    assert keyring.keys_for("personal", 5)[0] == keyring.keys_for("personal", None)[0] == keyring.newest_key("personal")
    assert keyring.newest_key("personal").key == ONE
    assert keyring.newest_key("shared:acme").kid is None


def test_an_org_with_epochs_needs_the_kid_of_one() -> None:
    keyring = Keyring(MASTER, {"org:acme": {1: ONE, 10: TWO}})
    assert (keyring.keys_for("shared:acme", 1)[0].key, keyring.keys_for("shared:acme", 10)[0].key) == (ONE, TWO)
    assert (keyring.newest_key("shared:acme").key, keyring.newest_key("shared:acme").kid) == (TWO, 10)
    assert reason(keyring, "shared:acme", None) is Reason.MALFORMED
    assert reason(keyring, "shared:acme", 2) is Reason.NO_KEY
    assert keyring.keys_for("shared:other", None)[0].key == audience_key(MASTER, "org:other")


def test_keys_of_which_nothing_tells_what_they_are_are_tried_as_both_and_seal_nothing() -> None:
    keyring = Keyring(MASTER, {"org:acme": {1: ONE}}, {"org:acme": {2: TWO}})
    meant = [key.key for key in keyring.keys_for("shared:acme", 2)]
    assert meant == [TWO, audience_key(TWO, "org:acme")]
    assert [key.key for key in keyring.keys_for("shared:acme", 1)] == [ONE]
    assert (reason(keyring, "shared:acme", None), reason(keyring, "shared:acme", 3)) == (
        Reason.MALFORMED, Reason.NO_KEY
    )  # fmt: skip
    with pytest.raises(SealError) as error:
        keyring.newest_key("shared:acme")
    assert error.value.reason is Reason.NO_KEY
    told = keyring.joined(Keyring.from_org_keys("acme", {2: TWO}))
    assert told == Keyring(MASTER, {"org:acme": {1: ONE, 2: audience_key(TWO, "org:acme")}})
    assert told.newest_key("shared:acme").kid == 2


def test_an_audience_without_a_key() -> None:
    keyring = Keyring(audiences={"org:acme": ONE})
    for scope in ("personal", "shared:", "shared:acm"):
        assert reason(keyring, scope, None) is Reason.NO_KEY
    with pytest.raises(SealError):
        keyring.newest_key("personal")


def test_what_an_org_shares_becomes_its_audiences_keys() -> None:
    keyring = Keyring.from_org_keys("acme", {3: ONE})
    assert keyring == Keyring(audiences={"org:acme": {3: audience_key(ONE, "org:acme")}})
    assert Keyring.from_org_keys("acme", {}) == Keyring()
    newer = keyring.joined(Keyring.from_org_keys("acme", {4: TWO}))
    assert newer.newest_key("shared:acme").kid == 4
    assert newer.keys_for("shared:acme", 3)[0] == keyring.keys_for("shared:acme", 3)[0]


def test_keys_are_read_by_audience_and_epoch() -> None:
    value: Json = {"personal": ONE.hex(), "org:acme": {"1": ONE.hex(), str(2**64 - 1): TWO.hex()}, "org:é": TWO.hex()}
    assert Keyring.read_audiences(value) == Keyring(
        audiences={"personal": ONE, "org:acme": {1: ONE, 2**64 - 1: TWO}, "org:é": TWO}
    )


HEX = ONE.hex()


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"Personal": HEX},
        {"acme": HEX},
        {"personal": {"1": HEX}},
        {"personal": HEX[2:]},
        {"personal": HEX + "00"},
        {"personal": "zz" * 32},
        {"personal": 1},
        {"personal": None},
        {"org:acme": {}},
        {"org:acme": {"01": HEX}},
        {"org:acme": {"-1": HEX}},
        {"org:acme": {"": HEX}},
        {"org:acme": {"١": HEX}},
        {"org:acme": {str(2**64): HEX}},
        {"org:acme": {"1": None}},
        {"org:acme": {"1": {"1": HEX}}},
    ],
)
def test_what_are_no_keys(value: Json) -> None:
    with pytest.raises(SealError) as error:
        Keyring.read_audiences(value)
    assert error.value.reason is Reason.MALFORMED
    assert "zz" not in str(error.value)


@pytest.mark.parametrize("text", [b"", b"{}", b'{"format":"foldpoint.keyring/2","master":null,"audiences":{}}'])
def test_what_is_no_keyring(text: bytes) -> None:
    with pytest.raises(SealError) as error:
        Keyring.read(text)
    assert error.value.reason is Reason.UNREADABLE


def test_no_key_shows() -> None:
    keyring = Keyring(MASTER, {"personal": ONE})
    assert repr(keyring) == "Keyring()"
