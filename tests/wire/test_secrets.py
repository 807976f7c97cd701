"""Nothing that is secret is ever logged, whatever goes wrong (R53)."""

import asyncio
from typing import Any

import asyncpg
import httpx
from sqlalchemy import make_url

from tests.fixtures.devices import Device
from tests.fixtures.server import ADMIN_TOKEN, RunningServer, running_server
from tests.fixtures.tokens import issue_token, revoke_token

PAYLOAD = "what-nobody-else-may-read"
PASSWORD = "the-password-of-the-database"
#: What makes every kind of call fail with a trace.
BREAK = (
    "alter table stream rename to stream_gone",
    "alter table lease rename to lease_gone",
    "alter table op rename to op_gone",
)


def with_password(url: str) -> str:
    """The same database; one that asks for no password does not mind another."""
    parsed = make_url(url)
    return parsed.set(password=parsed.password or PASSWORD).render_as_string(hide_password=False)


async def try_everything(client: httpx.AsyncClient, mac: Device) -> set[int]:
    """Calls of many kinds, with a secret wherever one may stand."""
    base, headers = f"/v1/scopes/{mac.scope}", {"Content-Type": "application/json"}
    calls: list[Any] = [
        client.get(f"{base}/"),
        client.get("/v1/scopes/elsewhere/"),
        client.get(f"{base}/ops", params={"cursor": PAYLOAD}),
        client.get(f"{base}/state", params={"at": f'{{"{PAYLOAD}":-1}}'}),
        client.get(f"{base}/conversations"),
        client.get(f"{base}/transcript", params={"conversation": PAYLOAD}),
        client.get(f"{base}/leases", params={"agent": PAYLOAD}),
        client.get(f"{base}/committed-run", params={"agent": PAYLOAD, "run": PAYLOAD}),
        client.post(f"{base}/leases/acquire", json={"agent_id": PAYLOAD, "device_id": PAYLOAD, "ttl_ms": 1}),
        client.post(f"{base}/leases/acquire", json={"agent_id": PAYLOAD, "device_id": PAYLOAD, "ttl_ms": PAYLOAD}),
        client.post(f"{base}/leases/acquire", content=PAYLOAD, headers=headers),
        client.post(f"{mac.path}/ops", content=f'[{{"payload":"{PAYLOAD}"}}]'),
        client.put(f"/sync/{mac.scope}/checkpoints", content=f'{{"frontier":"{PAYLOAD}"}}'),
        mac.offer([*mac.ops, mac.say(PAYLOAD)]),
        mac.pull(),
        client.get(f"{base}/", headers={"Authorization": f"Basic {ADMIN_TOKEN}"}),
    ]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    broken_off = {type(outcome) for outcome in outcomes if not isinstance(outcome, httpx.Response)}
    assert broken_off <= {httpx.RemoteProtocolError}
    return {outcome.status_code for outcome in outcomes if isinstance(outcome, httpx.Response)}


async def test_R53_no_token_password_or_payload_is_in_the_log(database_url: str) -> None:
    with running_server(with_password(database_url)) as server:
        secrets = await provoke(server, database_url)
    log = "".join(server.log)
    assert "unexpected failure" in log
    for secret in secrets:
        assert secret not in log


async def provoke(server: RunningServer, database_url: str) -> list[str]:
    """Let calls succeed and fail in every way; what must not be told of them."""
    token, revoked = [await issue_token(database_url, "device", "s") for _ in range(2)]
    await revoke_token(database_url, revoked)
    async with server.client(token.secret) as own, server.client(revoked.secret) as gone, server.client() as admin:
        mac = Device(own, "s", "mac")
        mac.say(PAYLOAD)
        mac.intend(PAYLOAD, "pending", agent=PAYLOAD)
        statuses = set[int]()
        for client in (own, gone, admin):
            statuses |= await try_everything(client, mac)
        await break_the_database(database_url)
        for client in (own, gone, admin):
            statuses |= await try_everything(client, mac)
    assert {200, 400, 401, 403, 404, 422, 500} <= statuses
    password = make_url(server.database_url).password
    assert password is not None
    return [ADMIN_TOKEN, token.secret, revoked.secret, PAYLOAD, password]


async def break_the_database(url: str) -> None:
    database = await asyncpg.connect(url)
    for statement in BREAK:
        await database.execute(statement)
    await database.close()


async def test_what_is_refused_does_not_say_what_was_sent(admin: httpx.AsyncClient, scope: str) -> None:
    """It may be a secret that was put in the wrong place."""
    body = {"agent_id": "ada", "device_id": "mac", "ttl_ms": PAYLOAD}
    response = await admin.post(f"/sync/{scope}/leases/ada/acquire", json=body)
    assert response.status_code == 422
    assert PAYLOAD not in response.text
