"""Who may call what (server.md §9). Every route is asked for, so one without an access check fails here."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute

from app.main import ROUTERS
from tests.fixtures.devices import Device, checkpoint_text
from tests.fixtures.server import RunningServer
from tests.fixtures.tokens import ClientOf, issue_token, revoke_token
from tests.wire.answers import read, refused
from tests.wire.one_connection import connected
from tests.wire.org_keys import wrap

READ = {"admin", "device", "executor", "reader"}
LEASE = {"admin", "device", "executor"}
SYNC = {"admin", "device"}
ADMIN = {"admin"}

SCOPE, SYNC_PATH = "/v1/scopes/{scope}", "/sync/{scope}"
HOSTED = {"writer": "web", "ops": [{"surface": "run", "payload": 1}]}
STAMP = {"wall_ms": 1, "counter": 0, "device_id": "mac"}
RUN = {"agent_id": "ada", "run_id": "r"}
HELD = {"device_id": "mac", "epoch": 1}
WRAP = wrap(1, "ada")
JOURNALS, LEDGERS, CONTEXTS = SCOPE + "/journals", SCOPE + "/run-ledgers", SCOPE + "/contexts"
SESSION = {"session": "s"}
STARTED = {"seq": 0, "occurred_at_ms": 1, "event": {"event": "run_started", "run_id": "r", "agent_id": "ada"}}
REMOVE = {"op": "remove", "message_id": "m"}
AUDITS = ("statuses", "conflicts", "readback", "export")
CONTEXT = ("render", "resume", "checkpoint", "export")


@dataclass(frozen=True)
class Call:
    """A request that a route understands, and the roles that may make it."""

    roles: set[str]
    body: Any = None
    params: Mapping[str, str] = field(default_factory=dict)
    #: Whether it names the device `mac`, so that a token bound to another one may not make it.
    names_device: bool = False
    #: Whether no token bound to a device may make it.
    is_owners: bool = False

    def content(self) -> bytes | None:
        return self.body if self.body is None or isinstance(self.body, bytes) else json.dumps(self.body).encode()


CALLS: dict[tuple[str, str], Call] = {
    ("POST", SYNC_PATH + "/devices/{device}"): Call(SYNC, names_device=True),
    ("POST", SYNC_PATH + "/devices/{device}/ops"): Call(SYNC, b"[]", names_device=True),
    ("POST", SYNC_PATH + "/devices/{device}/pull"): Call(SYNC, {}, names_device=True),
    ("POST", SYNC_PATH + "/devices/{device}/ack"): Call(SYNC, STAMP, names_device=True),
    ("PUT", SYNC_PATH + "/checkpoints"): Call(SYNC, checkpoint_text([])),
    ("GET", SYNC_PATH + "/checkpoints/latest"): Call(READ),
    ("GET", SYNC_PATH + "/roster"): Call(READ),
    ("GET", SYNC_PATH + "/stable-frontier"): Call(READ),
    ("POST", SYNC_PATH + "/gc"): Call(SYNC),
    ("POST", SYNC_PATH + "/leases/{agent}/acquire"): Call(LEASE, {"device_id": "mac", "ttl_ms": 0}, names_device=True),
    ("POST", SYNC_PATH + "/leases/{agent}/renew"): Call(LEASE, {**HELD, "ttl_ms": 0}, names_device=True),
    ("POST", SYNC_PATH + "/leases/{agent}/release"): Call(LEASE, HELD, names_device=True),
    ("GET", SYNC_PATH + "/leases/{agent}"): Call(READ),
    ("PUT", SYNC_PATH + "/org-keys/wrapped"): Call(ADMIN, WRAP),
    ("GET", SYNC_PATH + "/org-keys/wrapped/{recipient}"): Call(READ),
    ("PUT", SYNC_PATH + "/org-keys/pubkeys/{account}"): Call(ADMIN, {"public_hex": "ab12"}),
    ("GET", SYNC_PATH + "/org-keys/pubkeys"): Call(READ),
    ("GET", SCOPE + "/"): Call(READ),
    ("GET", SCOPE): Call(READ),
    ("GET", SCOPE + "/roster"): Call(ADMIN),
    ("GET", SCOPE + "/ops"): Call(READ),
    ("POST", SCOPE + "/devices/{device}/ops"): Call(SYNC, b"[]", names_device=True),
    ("GET", SCOPE + "/state"): Call(READ),
    ("GET", SCOPE + "/state/hash"): Call(READ),
    ("GET", SCOPE + "/log/{surface}"): Call(READ),
    ("GET", SCOPE + "/registries/{kind}"): Call(READ),
    ("GET", SCOPE + "/conversations"): Call(READ),
    ("GET", SCOPE + "/transcript"): Call(READ, params={"conversation": "c"}),
    ("GET", SCOPE + "/resume"): Call(READ, params={"conversation": "c"}),
    ("GET", SCOPE + "/committed-run"): Call(READ, params={"agent": "ada", "run": "r"}),
    ("POST", SCOPE + "/committed-runs/lookup"): Call(READ, {"runs": [RUN]}),
    ("GET", SCOPE + "/committed-runs"): Call(READ, params={"agent": "ada"}),
    ("GET", SCOPE + "/intent"): Call(READ, params={"agent": "ada", "run": "r"}),
    ("GET", SCOPE + "/agents"): Call(READ, params={"agent": "ada"}),
    ("POST", SCOPE + "/fence"): Call(READ, {**RUN, **HELD}),
    ("GET", SCOPE + "/leases"): Call(READ, params={"agent": "ada"}),
    ("POST", SCOPE + "/hosted/append"): Call(LEASE, HOSTED),
    ("POST", SCOPE + "/turns"): Call(LEASE, {**HOSTED, "conversation_id": "c", "role": "user", "content": "x"}),
    ("POST", SCOPE + "/intents"): Call(
        LEASE, {"writer": "web", "agent_id": "ada", "run_id": "r", "epoch": 1, "status": "pending"}
    ),
    ("GET", JOURNALS): Call(READ),
    ("GET", JOURNALS + "/export"): Call(READ, params=SESSION),
    ("GET", JOURNALS + "/recovery"): Call(READ, params={**SESSION, "transcript_messages": "1"}),
    ("POST", JOURNALS + "/append"): Call(LEASE, {"writer": "web", **SESSION, "entries": [{"op": "unrewind"}]}),
    ("POST", JOURNALS + "/claim"): Call(LEASE, {"writer": "web", **SESSION, "queue": "steer", "count": 1}),
    ("POST", JOURNALS + "/import"): Call(LEASE, b"", params={"writer": "web", **SESSION}),
    ("GET", LEDGERS): Call(READ),
    **{("GET", f"{LEDGERS}/{asked}"): Call(READ, params={"run": "r"}) for asked in AUDITS},
    ("POST", LEDGERS + "/append"): Call(LEASE, {"writer": "web", "run_id": "r", "records": [STARTED]}),
    ("POST", LEDGERS + "/seal"): Call(LEASE, {"writer": "web", "run_id": "r", "through_seq": 0, "epoch": 1}),
    ("POST", LEDGERS + "/import"): Call(LEASE, b"", params={"writer": "web", "run": "r"}),
    ("GET", CONTEXTS): Call(READ),
    **{("GET", f"{CONTEXTS}/{asked}"): Call(READ, params={**SESSION, "window": "9"}) for asked in CONTEXT},
    ("POST", CONTEXTS + "/ops"): Call(
        LEASE, {"writer": "web", **SESSION, "ops": [{"op": "remove", "message_id": "m"}]}
    ),
    ("POST", CONTEXTS + "/import"): Call(LEASE, b"", params={"writer": "web", **SESSION}),
    ("GET", SCOPE + "/leases/claim"): Call(ADMIN, params={"agent": "ada"}),
    ("DELETE", SCOPE + "/leases/claim"): Call(ADMIN, params={"agent": "ada"}),
    ("POST", SCOPE + "/leases/acquire"): Call(
        LEASE, {"agent_id": "ada", "device_id": "mac", "ttl_ms": 0}, names_device=True
    ),
    ("POST", SCOPE + "/leases/renew"): Call(LEASE, {"agent_id": "ada", **HELD, "ttl_ms": 0}, names_device=True),
    ("POST", SCOPE + "/leases/release"): Call(LEASE, {"agent_id": "ada", **HELD}, names_device=True),
    ("GET", SCOPE + "/digests"): Call(READ, params={"device": "mac"}),
    ("GET", SCOPE + "/diff"): Call(READ, params={"from": "{}", "to": "{}"}),
    ("POST", SCOPE + "/gc"): Call(ADMIN),
    ("GET", SCOPE + "/retention"): Call(ADMIN),
    ("PUT", SCOPE + "/retention"): Call(ADMIN, b"null"),
    ("POST", SCOPE + "/checkpoints"): Call(ADMIN),
    ("GET", SCOPE + "/checkpoints"): Call(READ),
    ("GET", SCOPE + "/checkpoints/{checkpoint_hash}"): Call(READ),
    ("PUT", SCOPE + "/keys"): Call(SYNC, {"audiences": {"personal": "00" * 32}}, is_owners=True),
    ("DELETE", SCOPE + "/keys"): Call(SYNC, is_owners=True),
    ("PUT", SCOPE + "/mode"): Call(ADMIN, {"mode": "sealed"}),
}
#: Known to every token, of whatever scope.
EVERYBODY = {("GET", "/v1/limits")}
OPEN = {("GET", "/healthz"), ("GET", "/readyz")}
#: The API to read, for anybody's browser.
PAGES = {("GET", "/docs"), ("GET", "/docs/{asset}")}
IDS = {
    "device": "mac",
    "agent": "ada",
    "surface": "knowledge",
    "kind": "config",
    "checkpoint_hash": "ckpt-0",
    "recipient": "ada",
    "account": "ada",
}


async def make(client: httpx.AsyncClient, scope: str, route: tuple[str, str], call: Call) -> httpx.Response:
    method, path = route
    url = path.format(scope=scope, **IDS)
    headers = {"Content-Type": "application/json"}
    return await client.request(method, url, content=call.content(), params=dict(call.params), headers=headers)


def is_answered(response: httpx.Response) -> bool:
    """Whether the caller was let in: what it asked for need not be there."""
    return response.status_code in (200, 204, 404, 409)


def in_openapi(document: Any) -> Iterator[tuple[str, str]]:
    for path, methods in document["paths"].items():
        for method in methods:
            yield method.upper(), path


def served() -> Iterator[tuple[str, str]]:
    """What the routers hold, also what no document shows."""
    for router in ROUTERS:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            for method in route.methods or ():
                yield method, route.path.replace("{kind:path}", "{kind}")


async def test_every_route_is_asked_for_here(admin: httpx.AsyncClient) -> None:
    listed = set(in_openapi(read(await admin.get("/openapi.json"))))
    assert set(served()) == CALLS.keys() | EVERYBODY | OPEN | PAGES
    assert listed == set(served()) - {("GET", SCOPE)} - PAGES


async def test_no_route_of_a_scope_answers_without_a_token_or_with_a_wrong_one(
    server: RunningServer, scope: str, stranger: httpx.AsyncClient
) -> None:
    async with server.client() as nobody:
        del nobody.headers["Authorization"]
        basic = {"Authorization": "Basic YWRtaW46YWRtaW4="}
        for route, call in {**CALLS, ("GET", "/v1/limits"): Call(READ)}.items():
            for response in (await make(nobody, scope, route, call), await make(stranger, scope, route, call)):
                refused(response, "unauthorized")
                assert response.headers["www-authenticate"] == "Bearer"
        refused(await nobody.get("/v1/limits", headers=basic), "unauthorized")
        for _, path in OPEN:
            read(await nobody.get(path))


@pytest.mark.parametrize("role", sorted(READ))
async def test_each_role_may_do_what_is_its_own_and_nothing_else(client_of: ClientOf, scope: str, role: str) -> None:
    client = await client_of(role, None if role == "admin" else scope)
    read(await client.get("/v1/limits"))
    for route, call in CALLS.items():
        response = await make(client, scope, route, call)
        if role in call.roles:
            assert is_answered(response), (route, response.text)
        else:
            assert f"role {role}" in refused(response, "forbidden")["detail"], route


@pytest.mark.parametrize("role", ["device", "executor", "reader"])
async def test_R21_another_scope_is_403_whether_or_not_it_exists(
    client_of: ClientOf, admin: httpx.AsyncClient, scope: str, role: str
) -> None:
    """With the same body, so that nothing about the other scope is told."""
    client = await client_of(role, scope)
    other, nowhere = scope + "-other", scope + "-nowhere"
    read(await admin.post(f"/sync/{other}/devices/mac/ops", content=b"[]"))
    for route, call in CALLS.items():
        theirs = await make(client, other, route, call)
        refused(theirs, "forbidden")
        assert (await make(client, nowhere, route, call)).content == theirs.content, route


async def test_a_token_bound_to_a_device_may_name_no_other(client_of: ClientOf, scope: str) -> None:
    bound = await client_of("device", scope, "phone")
    own = await client_of("device", scope, "mac")
    for route, call in CALLS.items():
        if "device" not in call.roles:
            continue
        assert is_answered(await make(own, scope, route, call)) is not call.is_owners, route
        response = await make(bound, scope, route, call)
        if call.names_device or call.is_owners:
            refused(response, "forbidden")
        else:
            assert is_answered(response), route


async def test_a_bound_token_may_name_its_device_raw_or_as_a_slug(client_of: ClientOf, scope: str) -> None:
    client = await client_of("device", scope, "my mac")
    for name in ("my mac", "my_mac"):
        body = {"device_id": name, "ttl_ms": 0}
        read(await client.post(f"/sync/{scope}/leases/ada/acquire", json=body))
        read(await client.post(f"/sync/{scope}/devices/{name}/pull", content=b"{}"))
    body = {"device_id": "my@mac", "ttl_ms": 0}
    refused(await client.post(f"/sync/{scope}/leases/ada/acquire", json=body), "forbidden")


async def test_a_bound_token_claims_its_slug_for_its_own_raw_id(client_of: ClientOf, scope: str) -> None:
    client = await client_of("device", scope, "my mac")
    imposter, owner = Device(client, scope, "my@mac"), Device(client, scope, "my mac")
    refused(await imposter.offer(imposter.facts(1)), "foreign_ops")
    owner.facts(1)
    await owner.push()


async def test_R20_a_revoked_token_is_refused_on_the_next_request(server: RunningServer, scope: str) -> None:
    token = await issue_token(server.database_url, "device", scope)
    async with server.client(token.secret) as client:
        for route, call in CALLS.items():
            if "device" in call.roles:
                assert is_answered(await make(client, scope, route, call)), route
        await revoke_token(server.database_url, token)
        for route, call in CALLS.items():
            refused(await make(client, scope, route, call), "unauthorized")


async def test_access_is_decided_before_a_push_is_read(client_of: ClientOf, scope: str) -> None:
    reader = await client_of("reader", scope)
    for body in (b"{}", b"[1]", b""):
        refused(await reader.post(f"/sync/{scope}/devices/mac/ops", content=body), "forbidden")
    refused(await reader.post(f"/sync/{scope}/devices/hosted-x/ops", content=b"[]"), "forbidden")


async def test_a_strangers_large_body_is_not_awaited(server: RunningServer, scope: str) -> None:
    """Ten megabytes are announced, and the answer comes after a hundred kilobytes."""
    for line in (f"POST /sync/{scope}/devices/mac/ops", f"PUT /sync/{scope}/checkpoints"):
        async with connected(server) as connection:
            answer = await connection.ask(line, "Content-Length: 10000000", body=b" " * 100_000, token="nobody")
            assert b'"code":"unauthorized"' in answer


async def test_no_credential_is_taken_from_the_query(server: RunningServer, scope: str) -> None:
    token = await issue_token(server.database_url, "device", scope)
    async with server.client() as client:
        del client.headers["Authorization"]
        for name in ("token", "access_token", "authorization"):
            refused(await client.get(f"/v1/scopes/{scope}/", params={name: token.secret}), "unauthorized")
