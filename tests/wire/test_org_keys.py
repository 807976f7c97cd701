"""The org-key directory (car-sync.md §12.3, §13b): what is published is kept as it is, and served to the scope."""

import asyncio
from collections.abc import Callable

import httpx
import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from app.sql.org_keys import PAGE
from foldpoint.canonical import Json
from foldpoint.seal.keys import exchange_identity, issued_master, signing_identity
from foldpoint.seal.wraps import Grant, org_keys_of, read_wrapped, wrap_org_key
from tests.fixtures.devices import NewDevice, envelope
from tests.fixtures.server import RunningServer
from tests.wire.answers import is_done, read, refused
from tests.wire.org_keys import ADA, Directory, wrap


async def test_a_recipients_wraps_are_served_newest_epoch_first(directory: Directory) -> None:
    epochs = [1, 10, 9, 0, 2**64 - 1, 2**63]
    for epoch in epochs:
        assert is_done(await directory.offer(wrap(epoch, ADA)))
    assert is_done(await directory.offer(wrap(5, "acc_bob")))
    assert await directory.wraps() == [wrap(epoch, ADA) for epoch in sorted(epochs, reverse=True)]
    assert await directory.wraps("acc_bob") == [wrap(5, "acc_bob")]
    assert await directory.wraps("acc_carol") == []


async def test_a_wrap_is_served_byte_by_byte_as_it_was_published(directory: Directory) -> None:
    """Field order, spaces, fields of a later version, and what an envelope says twice."""
    members = [b'"%b" : %b' % (name.encode(), orjson.dumps(value)) for name, value in wrap(1, ADA).items()]
    text = b'\n{"later":1.50,' + b" ,".join(reversed(members)).replace(b'"ct"', b'"ct":1,"ct"') + b"}\t"
    assert is_done(await directory.offer(text))
    assert (await directory.client.get(f"{directory.path}/wrapped/{ADA}")).content == b"[" + text + b"]"


async def test_the_last_wrap_for_a_recipient_at_an_epoch_stays(directory: Directory) -> None:
    for text in ("00", "11", "22"):
        for recipient in (ADA, "acc_bob"):
            assert is_done(await directory.offer(wrap(1, recipient, text + recipient)))
    assert is_done(await directory.offer(wrap(1, ADA, "33", org="globex", publisher="acc_eve")))
    assert await directory.wraps() == [wrap(1, ADA, "33", org="globex", publisher="acc_eve")]
    assert await directory.wraps("acc_bob") == [wrap(1, "acc_bob", "22acc_bob")]


async def test_recipients_who_share_a_slug_share_an_answer_and_replace_nothing(directory: Directory) -> None:
    """The wire asks by the slug alone; whom a wrap is for is in what its granter signed."""
    recipients = ["acc_ada", "acc.ada", "acc\0ada", "acc😀ada"]
    for recipient in recipients:
        for epoch in (1, 2):
            assert is_done(await directory.offer(wrap(epoch, recipient)))
    for asked in recipients:
        served = await directory.wraps(asked)
        assert [one["epoch"] for one in served] == [2] * 4 + [1] * 4
        assert {one["recipient"] for one in served} == set(recipients)


@pytest.mark.parametrize("count", [PAGE - 1, PAGE, PAGE + 1, 2 * PAGE])
async def test_many_wraps_are_one_answer(directory: Directory, count: int) -> None:
    wraps = [wrap(epoch // 2, "acc.ada" if epoch % 2 else ADA) for epoch in range(count)]
    await asyncio.gather(*map(directory.offer, wraps))
    served = await directory.wraps()
    assert len(served) == count
    assert [one["epoch"] for one in served] == sorted((one["epoch"] for one in served), reverse=True)
    assert {orjson.dumps(one) for one in served} == {orjson.dumps(one) for one in wraps}


async def test_public_keys_are_listed_by_account_and_the_last_of_each_stays(directory: Directory) -> None:
    accounts = ["b", "a_", "B", "a-", "a", "_", "a0"]
    for text in ("ab12", "cd34"):
        for account in accounts:
            assert is_done(await directory.offer_key(account, text + account))
    listed = read(await directory.client.get(f"{directory.path}/pubkeys"))
    assert listed == [{"account_id": account, "public_hex": "cd34" + account} for account in sorted(accounts)]


async def test_what_is_published_opens_for_its_recipient_alone(directory: Directory) -> None:
    """An org's key at two epochs, through the directory and back."""
    ada, bob = (exchange_identity(issued_master(name.encode(), name), name) for name in (ADA, "acc_bob"))
    granter = signing_identity(issued_master(b"grace", "acc_grace"), "acc_grace")
    org_keys = {epoch: bytes([epoch]) * 32 for epoch in (1, 2)}
    ephemeral = X25519PrivateKey.from_private_bytes(bytes([5]) * 32)
    for account, identity in ((ADA, ada), ("acc_bob", bob)):
        assert is_done(await directory.offer_key(account, identity.public_key().public_bytes_raw().hex()))
    key = bytes.fromhex((await directory.keys())[ADA])
    for epoch, org_key in org_keys.items():
        grant = Grant("acme", epoch, ADA, "acc_grace")
        wrapped = wrap_org_key(org_key, grant, key, signer=granter, ephemeral=ephemeral, nonce=bytes(12))
        assert is_done(await directory.offer(wrapped.to_json()))
    served = [read_wrapped(one) for one in await directory.wraps()]
    trusted = [granter.public_key().public_bytes_raw()]
    assert org_keys_of(served, "acme", ada, ADA, trusted) == org_keys
    assert org_keys_of(served, "acme", bob, "acc_bob", trusted) == {}


async def test_an_unused_scope_answers_like_an_empty_directory_and_a_read_makes_nothing(directory: Directory) -> None:
    assert (await directory.wraps(), await directory.keys()) == ([], {})
    scope = directory.path.split("/")[2]
    refused(await directory.client.get(f"/v1/scopes/{scope}/"), "not_found")
    refused(await directory.offer(b"{}"), "invalid_request")
    refused(await directory.offer_key("acc.ada", "ab12"), "invalid_request")
    refused(await directory.client.get(f"/v1/scopes/{scope}/"), "not_found")
    assert is_done(await directory.offer_key(ADA, "ab12"))
    assert read(await directory.client.get(f"/v1/scopes/{scope}/"))["scope"] == scope


async def test_scopes_share_no_directory(directory: Directory, admin: httpx.AsyncClient, scope: str) -> None:
    other = Directory(admin, scope + "-2")
    assert is_done(await directory.offer(wrap(1, ADA)))
    assert is_done(await directory.offer_key(ADA, "ab12"))
    assert (await other.wraps(), await other.keys()) == ([], {})


@pytest.mark.parametrize("payload", [{"id": "f"}, envelope()], ids=["plain", "sealed"])
async def test_the_directory_is_no_part_of_the_op_stream(
    device: NewDevice, directory: Directory, scope: str, payload: Json
) -> None:
    assert is_done(await directory.offer(wrap(1, ADA)))
    mac = device("mac")
    mac.write("knowledge", payload)
    await mac.push()
    assert is_done(await directory.offer_key(ADA, "ab12"))
    overview = read(await mac.client.get(f"/v1/scopes/{scope}/"))
    assert (overview["frontier"], overview["ops"]) == ({"mac": 0}, 1)
    await mac.ack()
    read(await mac.client.post(f"/v1/scopes/{scope}/gc"))
    assert (await directory.wraps(), await directory.keys()) == ([wrap(1, ADA)], {ADA: "ab12"})


async def test_what_was_answered_survives_a_kill_and_every_process_has_it(
    start_server: Callable[..., RunningServer], scope: str
) -> None:
    servers = [start_server(), start_server()]
    clients = [server.client() for server in servers]
    first, second = (Directory(client, scope) for client in clients)
    outcomes = await asyncio.gather(
        *(each.offer(wrap(1, ADA, f"{n:02}")) for n in range(20) for each in (first, second))
    )
    assert all(map(is_done, outcomes))
    assert is_done(await first.offer_key(ADA, "ab12"))
    (kept,) = await first.wraps()
    servers[0].kill()
    assert (await second.wraps(), await second.keys()) == ([kept], {ADA: "ab12"})
    third = Directory(start_server().client(), scope)
    assert (await third.wraps(), await third.keys()) == ([kept], {ADA: "ab12"})
    for client in (*clients, third.client):
        await client.aclose()
