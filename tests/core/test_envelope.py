import pytest

from foldpoint.canonical import Json
from foldpoint.envelope import is_well_formed

SEALED: dict[str, Json] = {"car_enc": "chacha20poly1305", "nonce": "00", "ct": "00"}


@pytest.mark.parametrize("more", [{}, {"kid": 0}, {"kid": 2**64 - 1}, {"kid": None}, {"later": None}])
def test_an_envelope_that_some_key_may_open(more: dict[str, Json]) -> None:
    assert is_well_formed(SEALED | more)


@pytest.mark.parametrize("wrong", [{"nonce": 1}, {"ct": None}, {"kid": 1.0}, {"kid": True}, {"kid": -1}, {"kid": "1"}])
def test_an_envelope_that_no_key_can_open(wrong: dict[str, Json]) -> None:
    """server.md §9: nonce or ct is not a string, or kid not a u64."""
    assert not is_well_formed(SEALED | wrong)
