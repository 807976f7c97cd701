"""Who may publish in an org-key directory (server.md §9): it decides who is given the org's key."""

import httpx
import pytest

from tests.fixtures.server import RunningServer
from tests.fixtures.tokens import ClientOf, issue_token, revoke_token
from tests.wire.answers import is_done, read, refused
from tests.wire.org_keys import ADA, wrap

BOB = "acc_bob"
ROLES = pytest.mark.parametrize("role", ["device", "executor", "reader"])


async def offer_wrap(client: httpx.AsyncClient, scope: str, recipient: str = ADA) -> httpx.Response:
    return await client.put(f"/sync/{scope}/org-keys/wrapped", json=wrap(1, recipient))


async def offer_key(client: httpx.AsyncClient, scope: str, account: str, key: str = "ab12") -> httpx.Response:
    return await client.put(f"/sync/{scope}/org-keys/pubkeys/{account}", json={"public_hex": key})


async def keys_of(client: httpx.AsyncClient, scope: str) -> dict[str, str]:
    listed = read(await client.get(f"/sync/{scope}/org-keys/pubkeys"))
    return {entry["account_id"]: entry["public_hex"] for entry in listed}


@ROLES
async def test_a_role_alone_reads_and_publishes_nothing(client_of: ClientOf, scope: str, role: str) -> None:
    client = await client_of(role, scope)
    assert f"role {role}" in refused(await offer_wrap(client, scope), "forbidden")["detail"]
    assert f"role {role}" in refused(await offer_key(client, scope, ADA), "forbidden")["detail"]
    assert read(await client.get(f"/sync/{scope}/org-keys/wrapped/{ADA}")) == []
    assert await keys_of(client, scope) == {}


@ROLES
async def test_a_granter_publishes_wraps_for_anybody_and_no_key(client_of: ClientOf, scope: str, role: str) -> None:
    client = await client_of(role, scope, granter=True)
    for recipient in (ADA, BOB):
        assert is_done(await offer_wrap(client, scope, recipient))
        refused(await offer_key(client, scope, recipient), "forbidden")
    assert await keys_of(client, scope) == {}


@ROLES
async def test_an_account_publishes_its_own_key_and_no_wrap(client_of: ClientOf, scope: str, role: str) -> None:
    client = await client_of(role, scope, account=ADA)
    for key in ("ab12", "cd34"):
        assert is_done(await offer_key(client, scope, ADA, key))
    for account in (BOB, "acc%2Eada", "acc_ad", "acc_ada_", "Acc_ada", "acc_ada%00", "%61cc_ad%C3%A4"):
        refused(await offer_key(client, scope, account), "forbidden")
    refused(await offer_wrap(client, scope), "forbidden")
    assert await keys_of(client, scope) == {ADA: "cd34"}


async def test_both_grants_on_a_token_that_is_bound_to_a_device(client_of: ClientOf, scope: str) -> None:
    client = await client_of("device", scope, "mac", ADA, granter=True)
    assert is_done(await offer_wrap(client, scope))
    assert is_done(await offer_key(client, scope, ADA))


async def test_an_admin_publishes_everything_whatever_its_grants(
    client_of: ClientOf, admin: httpx.AsyncClient, scope: str
) -> None:
    for client in (admin, await client_of("admin"), await client_of("admin", account=BOB)):
        assert is_done(await offer_wrap(client, scope))
        assert is_done(await offer_key(client, scope, ADA))


async def test_a_published_key_is_replaced_by_its_account_or_an_admin_alone(
    client_of: ClientOf, admin: httpx.AsyncClient, scope: str
) -> None:
    """Whoever put his own key there would be given the org's."""
    ada = await client_of("device", scope, account=ADA)
    assert is_done(await offer_key(ada, scope, ADA, "ada's"))
    others = [
        await client_of("device", scope, account=BOB, granter=True),
        await client_of("device", scope, ADA),
        await client_of("executor", scope, granter=True),
        await client_of("device", scope + "-other", account=ADA),
    ]
    for client in others:
        refused(await offer_key(client, scope, ADA, "another's"), "forbidden")
        assert await keys_of(ada, scope) == {ADA: "ada's"}
    assert is_done(await offer_key(admin, scope, ADA, "set by an admin"))
    assert await keys_of(ada, scope) == {ADA: "set by an admin"}
    assert is_done(await offer_key(await client_of("reader", scope, account=ADA), scope, ADA, "ada's next"))
    assert await keys_of(ada, scope) == {ADA: "ada's next"}


async def test_grants_hold_in_the_tokens_scope_alone(client_of: ClientOf, admin: httpx.AsyncClient, scope: str) -> None:
    client = await client_of("device", scope, account=ADA, granter=True)
    other, nowhere = scope + "-other", scope + "-nowhere"
    assert is_done(await offer_key(admin, other, BOB))
    for elsewhere in (other, nowhere):
        refused(await offer_wrap(client, elsewhere), "forbidden")
        refused(await offer_key(client, elsewhere, ADA), "forbidden")
        refused(await client.get(f"/sync/{elsewhere}/org-keys/wrapped/{ADA}"), "forbidden")
        refused(await client.get(f"/sync/{elsewhere}/org-keys/pubkeys"), "forbidden")
    assert await keys_of(admin, other) == {BOB: "ab12"}


async def test_an_account_that_travels_as_another_has_no_key(admin: httpx.AsyncClient, scope: str) -> None:
    """`acc.ada` and `acc_ada` are two accounts; on the wire both are the second."""
    for account in ("acc.ada", "acc%20ada", "%C3%A4da", "%00"):
        assert refused(await offer_key(admin, scope, account), "invalid_request")["path"] == "account"
    for account in ("a/b", "a%2Fb"):
        refused(await offer_key(admin, scope, account), "not_found")
    assert await keys_of(admin, scope) == {}


async def test_who_may_publish_is_decided_before_what_is_published_is_read(client_of: ClientOf, scope: str) -> None:
    client = await client_of("reader", scope)
    for body in (b"", b"{", b"null", b" " * 100_000):
        for path in ("wrapped", f"pubkeys/{ADA}"):
            refused(await client.put(f"/sync/{scope}/org-keys/{path}", content=body), "forbidden")


async def test_R20_a_revoked_grant_ends_with_its_token(server: RunningServer, scope: str) -> None:
    token = await issue_token(server.database_url, "device", scope, account=ADA, granter=True)
    async with server.client(token.secret) as client:
        assert is_done(await offer_wrap(client, scope))
        await revoke_token(server.database_url, token)
        refused(await offer_wrap(client, scope), "unauthorized")
        refused(await offer_key(client, scope, ADA), "unauthorized")
