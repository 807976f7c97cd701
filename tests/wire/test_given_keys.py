"""Keys as an owner gives them: which are taken, and what they are taken for (server.md §9, §11)."""

from typing import Any

import httpx
import orjson
import pytest

from foldpoint.canonical import Json
from foldpoint.seal import Keyring
from foldpoint.state import state_hash
from tests.fixtures.devices import NewDevice
from tests.fixtures.sealing import ORG_KEYS, PASSPHRASE, Sealing, delete_keys, folded, given, master, owner, put_keys
from tests.wire.answers import read, refused

ORG = {"audiences": {"org:acme": {str(epoch): key.hex() for epoch, key in ORG_KEYS.items()}}}


@pytest.fixture
def mac(admin: httpx.AsyncClient, scope: str) -> Sealing:
    return Sealing(admin, scope, "mac")


async def state_of(mac: Sealing) -> dict[str, Any]:
    found: dict[str, Any] = read(await mac.client.get(f"/v1/scopes/{mac.scope}/state"))
    return found


async def test_keys_may_come_before_any_op(mac: Sealing) -> None:
    told = read(await put_keys(mac.client, mac.scope))
    assert told == {"unlocked": ["personal"], "opened_ops": 0, "unopened_ops": 0}
    mac.write_mixed(9)
    await mac.push()
    assert (await state_of(mac))["state_hash"] == state_hash(folded(mac.ops, Keyring(master())))


async def test_an_orgs_keys_are_taken_as_members_share_them_or_as_they_are_derived(
    admin: httpx.AsyncClient, scope: str
) -> None:
    shared = {"audiences": {"org:acme": {"1": ORG_KEYS[1].hex(), "2": ORG_KEYS[2].hex()}}}
    for number, body in enumerate((shared, given(Keyring.from_org_keys("acme", ORG_KEYS)))):
        member = Sealing(admin, f"{scope}-{number}", "mac")
        member.write("knowledge", {"id": "a"}, "shared:acme")
        await member.push()
        told = read(await put_keys(admin, member.scope, body))
        assert told == {"unlocked": ["org:acme"], "opened_ops": 1, "unopened_ops": 0}


@pytest.mark.parametrize("kind", ["shared", "derived"])
async def test_an_orgs_keys_may_come_before_its_first_op_in_either_form(mac: Sealing, kind: str) -> None:
    """Taken for the wrong ones, they would leave intents closed of which an executor must know."""
    base = f"/v1/scopes/{mac.scope}"
    body = (
        given(owner())
        if kind == "derived"
        else {"audiences": {**given(Keyring(master()))["audiences"], **ORG["audiences"]}}
    )
    draft = {"surface": "knowledge", "payload": {"id": "h"}, "scope": {"shared": {"org": "acme"}}}
    hosted = {"writer": "web", "ops": [draft]}
    mac.write("knowledge", {"id": "own"})
    await mac.push()
    assert read(await put_keys(mac.client, mac.scope, body))["unlocked"] == ["org:acme", "personal"]
    refused(await mac.client.post(f"{base}/hosted/append", json=hosted), "sealed_scope")
    mac.write("intent", {"id": "r", "agent_id": "ada", "epoch": 1, "status": "committed"}, "shared:acme")
    mac.write_mixed(20)
    await mac.push()
    assert (await state_of(mac))["state_hash"] == state_hash(folded(mac.ops, owner()))
    asked = {"agent": "ada", "run": "r"}
    assert read(await mac.client.get(f"{base}/committed-run", params=asked))["status"] == "committed"
    read(await put_keys(mac.client, mac.scope, body))
    assert (await state_of(mac))["sealed_ops"] == 0
    read(await mac.client.post(f"{base}/hosted/append", json=hosted))


async def test_keys_that_open_nothing_change_nothing(mac: Sealing) -> None:
    mac.write_mixed(30)
    await mac.push()
    wrong: list[dict[str, Any]] = [
        {"passphrase": PASSPHRASE + "!", "user": "ada"},
        {"passphrase": PASSPHRASE, "user": "eve"},
        {"audiences": {"personal": "00" * 32}},
        {"audiences": {"org:acme": {"7": "00" * 32}}},
        {"audiences": {"org:other": "00" * 32}},
    ]
    for body in wrong:
        refused(await put_keys(mac.client, mac.scope, body), "wrong_key")
        assert read(await mac.client.get(f"/v1/scopes/{mac.scope}/"))["keys"] is None
    read(await put_keys(mac.client, mac.scope))
    before = await state_of(mac)
    for body in wrong:
        refused(await put_keys(mac.client, mac.scope, body), "wrong_key")
        assert await state_of(mac) == before


MALFORMED: list[Json] = [
    None,
    [],
    {},
    {"passphrase": PASSPHRASE},
    {"user": "ada"},
    {"passphrase": PASSPHRASE, "user": "ada", "audiences": {}},
    {"passphrase": "", "user": "ada"},
    {"passphrase": [PASSPHRASE], "user": "ada"},
    {"audiences": {"personal": PASSPHRASE}},
    {"audiences": {"personal": {"1": "00" * 32}}},
    {"audiences": {PASSPHRASE: "00" * 32}},
    {"audiences": {"org:acme": {"x": "00" * 32}}},
]


@pytest.mark.parametrize("body", MALFORMED)
async def test_what_is_no_key_is_refused_without_a_word_of_it(mac: Sealing, body: Json) -> None:
    response = await mac.client.put(f"/v1/scopes/{mac.scope}/keys", content=orjson.dumps(body))
    refused(response, "invalid_request")
    assert PASSPHRASE not in response.text
    response = await mac.client.put(f"/v1/scopes/{mac.scope}/keys", content=f'{{"passphrase": "{PASSPHRASE}')
    refused(response, "invalid_request")
    assert PASSPHRASE not in response.text


async def test_a_scope_has_so_many_keys_and_no_more(mac: Sealing) -> None:
    def some(first: int) -> dict[str, Any]:
        return {"audiences": {"org:acme": {str(epoch): "ab" * 32 for epoch in range(first, first + 8_000)}}}

    read(await put_keys(mac.client, mac.scope, some(0)))
    refused(await put_keys(mac.client, mac.scope, some(10_000)), "too_large")
    refused(await put_keys(mac.client, mac.scope, {"audiences": {}, "padding": "x" * 1024 * 1024}), "too_large")
    assert read(await put_keys(mac.client, mac.scope, some(0)))["unlocked"] == ["org:acme"]


async def test_a_plain_scope_has_no_keys(device: NewDevice, scope: str) -> None:
    mac = device("mac")
    mac.facts(1)
    await mac.push()
    refused(await put_keys(mac.client, scope), "plain_scope")
    assert read(await mac.client.get(f"/v1/scopes/{scope}/"))["mode"] == "plain"


async def test_a_plain_scope_is_not_locked_and_loses_nothing(device: NewDevice, scope: str) -> None:
    mac = device("mac")
    mac.facts(3)
    mac.intend("r", "committed")
    await mac.push()
    before = read(await mac.client.get(f"/v1/scopes/{scope}/state"))
    refused(await delete_keys(mac.client, scope), "plain_scope")
    assert read(await mac.client.get(f"/v1/scopes/{scope}/state")) == before
    run = {"agent": "ada", "run": "r"}
    assert read(await mac.client.get(f"/v1/scopes/{scope}/committed-run", params=run))["status"] == "committed"


async def test_a_further_put_of_the_same_keys_is_answered_at_once(mac: Sealing) -> None:
    mac.write_mixed(9)
    await mac.push()
    assert read(await put_keys(mac.client, mac.scope)) == read(await put_keys(mac.client, mac.scope))
