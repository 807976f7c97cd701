"""Org keys from the scope's directory, unwrapped for the owner of a passphrase (server.md §9, car-sync.md §13b)."""

from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from foldpoint.seal.keys import exchange_identity
from foldpoint.seal.wraps import Grant, wrap_org_key
from foldpoint.state import state_hash
from tests.fixtures.sealing import ORG_KEYS, PASSPHRASE, USER, Sealing, folded, master, owner, put_keys
from tests.wire.answers import is_done, read, refused
from tests.wire.org_keys import Directory

GRANTER, STRANGER = (Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in (7, 8))
TRUSTED = GRANTER.public_key().public_bytes_raw().hex()
BODY = {"passphrase": PASSPHRASE, "user": USER, "granters": [TRUSTED]}


def wrapped(epoch: int, signer: Ed25519PrivateKey = GRANTER, key: bytes | None = None) -> dict[str, Any]:
    recipient = exchange_identity(master(), USER).public_key().public_bytes_raw()
    ephemeral = X25519PrivateKey.from_private_bytes(bytes([epoch]) * 32)
    grant = Grant("acme", epoch, USER, "acc_grace")
    wrap = wrap_org_key(key or ORG_KEYS[epoch], grant, recipient, signer=signer, ephemeral=ephemeral, nonce=bytes(12))
    return wrap.to_json()


@pytest.fixture
async def mac(admin: httpx.AsyncClient, scope: str) -> Sealing:
    mac = Sealing(admin, scope, "mac")
    mac.write_mixed(60)
    await mac.push()
    return mac


async def hash_of(mac: Sealing) -> str:
    told: str = read(await mac.client.get(f"/v1/scopes/{mac.scope}/state/hash"))["state_hash"]
    return told


async def test_every_epoch_that_a_trusted_granter_signed_is_opened(mac: Sealing, directory: Directory) -> None:
    for epoch in ORG_KEYS:
        assert is_done(await directory.offer(wrapped(epoch)))
    told = read(await put_keys(mac.client, mac.scope, BODY))
    assert told == {"unlocked": ["org:acme", "personal"], "opened_ops": 60, "unopened_ops": 0}
    assert await hash_of(mac) == state_hash(folded(mac.ops, owner()))


async def test_a_later_epoch_is_taken_in_by_giving_the_same_again(mac: Sealing, directory: Directory) -> None:
    assert is_done(await directory.offer(wrapped(1)))
    assert read(await put_keys(mac.client, mac.scope, BODY))["unopened_ops"] == 12
    assert is_done(await directory.offer(wrapped(2)))
    assert read(await put_keys(mac.client, mac.scope, BODY))["unopened_ops"] == 0


async def test_what_a_stranger_signed_or_another_key_wraps_opens_nothing(mac: Sealing, directory: Directory) -> None:
    assert is_done(await directory.offer(wrapped(1, STRANGER)))
    assert is_done(await directory.offer({**wrapped(2), "epoch": 3}))
    told = read(await put_keys(mac.client, mac.scope, BODY))
    assert (told["opened_ops"], told["unopened_ops"]) == (48, 12)


@pytest.mark.parametrize("granters", ["00", [1], ["zz"], ["00"], [None], [TRUSTED] * 101])
async def test_granters_are_public_keys(mac: Sealing, granters: Any) -> None:
    problem = refused(await put_keys(mac.client, mac.scope, {**BODY, "granters": granters}), "invalid_request")
    assert problem["path"] == "granters"
