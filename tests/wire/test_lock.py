"""Locking a scope: nothing that was opened stays, and unlocking gives the same again (server.md §9)."""

import re
from collections.abc import Iterator
from hashlib import sha256

import asyncpg
import httpx
import pytest

from foldpoint.op import Op, op_from_json
from foldpoint.seal import Keyring, read_envelope
from foldpoint.state import state_hash
from tests.fixtures.database import fresh_database
from tests.fixtures.projections import enqueue
from tests.fixtures.sealing import PASSPHRASE, Sealing, delete_keys, folded, given, master, owner, put_keys
from tests.fixtures.server import RunningServer, running_server
from tests.fixtures.tokens import ClientOf
from tests.wire.answers import read, refused

#: A word that every opened payload holds.
MARKER = "marker-that-was-sealed"
#: Where opened payloads leave something.
OPENED = {"record", "stream", "agent", "intent", "run_seen", "entry", "entry_stream"}
TABLES = """
select c.oid::regclass::text as name, array_agg(quote_ident(a.attname)) as columns
from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
where c.relkind = 'r' and c.relnamespace = 'public'::regnamespace group by c.oid
"""


@pytest.fixture(scope="module")
def server(database_server: str, migrated_template: str) -> Iterator[RunningServer]:
    """A server on a database that these tests fill alone: they read every row of every table."""
    with fresh_database(database_server, migrated_template) as url, running_server(url) as running:
        yield running


@pytest.fixture
def mac(admin: httpx.AsyncClient, scope: str) -> Sealing:
    mac = Sealing(admin, scope, "mac")
    mac.say(MARKER, conversation=MARKER)
    mac.write("routing", {"sample": MARKER})
    mac.write("knowledge", {"id": MARKER})
    mac.write(f"registry:config-{'k' * 300}", {"id": MARKER})
    mac.intend(MARKER, "pending", agent=MARKER)
    mac.intend(MARKER, "failed", agent=MARKER)
    mac.intend(MARKER + "2", "committed", agent=MARKER)
    mac.intend(MARKER, "pending", epoch=2**63, agent=MARKER)
    enqueue(mac, MARKER, session=MARKER)
    return mac


async def holding(database: asyncpg.Connection, word: str) -> dict[str, int]:
    """How many rows of which table hold a word, in any column."""
    found = {}
    for row in await database.fetch(TABLES):
        texts = " || ' ' || ".join(f"coalesce(encode({c}::text::bytea, 'escape'), '')" for c in row["columns"])
        holds = "strpos(text, $1) > 0 or strpos(text, $2) > 0"
        counted = f"select count(*) from (select {texts} as text from {row['name']}) t where {holds}"
        count = await database.fetchval(counted, word, word.encode().hex())
        if count:
            found[row["name"]] = count
    return found


async def test_locking_leaves_nothing_of_what_was_opened(mac: Sealing, database: asyncpg.Connection) -> None:
    base = f"/v1/scopes/{mac.scope}"
    await mac.push()
    before = read(await mac.client.get(f"{base}/"))
    assert await holding(database, MARKER) == {}
    read(await put_keys(mac.client, mac.scope))
    assert (await holding(database, MARKER)).keys() == OPENED
    read(await mac.client.delete(f"{base}/leases/claim", params={"agent": MARKER}))
    assert (await holding(database, MARKER))["claim_reset"] == 1
    turn = {"writer": "web", "conversation_id": MARKER, "role": "user", "content": MARKER}
    read(await mac.client.post(f"{base}/turns", json=turn, headers={"idempotency-key": "k"}))
    told = read(await delete_keys(mac.client, mac.scope))
    assert told == {"unlocked": [], "opened_ops": 0, "unopened_ops": len(mac.ops) + 1}
    assert await holding(database, MARKER) == {}
    assert await holding(database, master().hex()) == {}
    number = await database.fetchval("select id from scope where slug = $1", mac.scope)
    for table in ("record", "stream", "agent", "intent", "run_seen", "registry_kind", "scope_key", "opened"):
        assert not await database.fetchval(f"select count(*) from {table} where scope = $1", number)
    after = read(await mac.client.get(f"{base}/"))
    assert {**after, "devices": 0, "frontier": 0} == {
        **before, "devices": 0, "frontier": 0, "ops": len(mac.ops) + 1, "sealed_ops": len(mac.ops) + 1
    }  # fmt: skip
    asked = {"agent": MARKER, "run": MARKER}
    problem = refused(await mac.client.get(f"{base}/committed-run", params=asked), "sealed_scope", 503)
    assert problem["closed_intents"] == 4
    read(await put_keys(mac.client, mac.scope))
    ops = [*mac.ops, *(await hosted_ops(mac))]
    found = read(await mac.client.get(f"{base}/state/hash"))
    assert found["state_hash"] == state_hash(folded(ops, Keyring(master())))


async def hosted_ops(mac: Sealing) -> list[Op]:
    page = read(await mac.client.get(f"/v1/scopes/{mac.scope}/ops?limit=5000"))
    return [op for op in map(op_from_json, page["ops"]) if op.device_id.startswith("hosted-")]


async def test_after_locking_pushes_are_relayed_only(mac: Sealing) -> None:
    await mac.push()
    read(await put_keys(mac.client, mac.scope))
    read(await delete_keys(mac.client, mac.scope))
    mac.write_mixed(9)
    await mac.push()
    assert read(await mac.client.get(f"/v1/scopes/{mac.scope}/state"))["sealed_ops"] == len(mac.ops)
    read(await put_keys(mac.client, mac.scope))
    found = read(await mac.client.get(f"/v1/scopes/{mac.scope}/state/hash"))
    assert found["state_hash"] == state_hash(folded(mac.ops, Keyring(master())))
    assert read(await delete_keys(mac.client, mac.scope)) == read(await delete_keys(mac.client, mac.scope))


async def test_only_the_owner_or_an_admin_may(mac: Sealing, client_of: ClientOf, scope: str) -> None:
    await mac.push()
    bound, reader, executor = (
        await client_of("device", scope, "mac"), await client_of("reader", scope), await client_of("executor", scope),
    )  # fmt: skip
    other = await client_of("device", scope + "-other")
    for client in (bound, reader, executor, other):
        refused(await put_keys(client, scope), "forbidden")
        refused(await delete_keys(client, scope), "forbidden")
        refused(await client.put(f"/v1/scopes/{scope}/mode", json={"mode": "plain"}), "forbidden")
    its_owner = await client_of("device", scope)
    assert read(await put_keys(its_owner, scope))["opened_ops"] == len(mac.ops)
    assert read(await delete_keys(its_owner, scope))["opened_ops"] == 0
    refused(await its_owner.put(f"/v1/scopes/{scope}/mode", json={"mode": "plain"}), "forbidden")


async def test_an_admin_says_the_mode_while_the_scope_is_empty(admin: httpx.AsyncClient, scope: str) -> None:
    mode = f"/v1/scopes/{scope}/mode"
    mac = Sealing(admin, scope, "mac")
    for name in ("plain", "sealed"):
        assert read(await admin.put(mode, json={"mode": name})) == {"mode": name}
        assert read(await admin.get(f"/v1/scopes/{scope}/"))["mode"] == name
    refused(await mac.offer([mac.write_raw("knowledge", {"id": "plain"})]), "sealed_scope")
    read(await put_keys(admin, scope))
    refused(await admin.put(mode, json={"mode": "plain"}), "sealed_scope")
    read(await delete_keys(admin, scope))
    read(await admin.put(mode, json={"mode": "plain"}))
    await mac.push()
    refused(await admin.put(mode, json={"mode": "sealed"}), "plain_scope")
    assert read(await admin.put(mode, json={"mode": "plain"})) == {"mode": "plain"}
    refused(await admin.put(mode, json={"mode": "open"}), "invalid_request")


async def test_hosted_writes_are_sealed_and_folded(mac: Sealing) -> None:
    base, turn = f"/v1/scopes/{mac.scope}", {"conversation_id": "c", "role": "user", "content": "hosted"}
    await mac.push()
    refused(await mac.client.post(f"{base}/turns", json={"writer": "web", **turn}), "sealed_scope")
    read(await put_keys(mac.client, mac.scope))
    op = read(await mac.client.post(f"{base}/turns", json={"writer": "web", **turn}))["op"]
    assert op["payload"].keys() == {"car_enc", "nonce", "ct"}
    told = read(await mac.client.get(f"{base}/transcript", params={"conversation": "c"}))["turns"]
    assert [(one["op_id"], one["content"]) for one in told] == [(op["op_id"], "hosted")]
    run = {"writer": "web", "agent_id": "ada", "run_id": "r", "epoch": 1}
    assert read(await mac.client.post(f"{base}/intents", json={**run, "status": "committed"}))["recorded"]
    again = read(await mac.client.post(f"{base}/intents", json={**run, "status": "failed"}))
    assert again == {"recorded": False, "reason": "already_committed"}
    draft = {"surface": "knowledge", "payload": {"id": "o"}, "scope": {"shared": {"org": "acme"}}}
    read(await mac.client.post(f"{base}/hosted/append", json={"writer": "web", "ops": [draft]}))
    ops = [*mac.ops, *(await hosted_ops(mac))]
    found = read(await mac.client.get(f"{base}/state/hash"))
    assert (found["state_hash"], found["sealed_ops"]) == (state_hash(folded(ops, Keyring(master()))), 0)
    nonces = {read_envelope(op.payload).nonce for op in ops[len(mac.ops) :]}
    assert len(nonces) == 3


async def test_a_gated_intent_needs_every_intent_that_a_key_could_open(mac: Sealing) -> None:
    """The run may have committed in one of them, and then its effect must not happen again (server.md §6)."""
    base = f"/v1/scopes/{mac.scope}"
    mac.write("intent", {"id": "r", "agent_id": "ada", "epoch": 1, "status": "committed"}, "shared:acme")
    await mac.push()
    read(await put_keys(mac.client, mac.scope))
    lease = {"agent_id": "ada", "device_id": "web", "ttl_ms": 60_000}
    epoch = read(await mac.client.post(f"{base}/leases/acquire", json=lease))["lease"]["epoch"]
    run = {"writer": "web", "agent_id": "ada", "run_id": "r", "epoch": epoch, "if_current": True}
    for status in ("pending", "committed"):
        refused(await mac.client.post(f"{base}/intents", json={**run, "status": status}), "sealed_scope", 503)
    read(await put_keys(mac.client, mac.scope, given(owner())))
    told = read(await mac.client.post(f"{base}/intents", json={**run, "status": "pending"}))
    assert told == {"recorded": False, "reason": "already_committed"}
    assert read(await mac.client.post(f"{base}/intents", json={**run, "status": "committed"}))["recorded"] is True


async def test_what_was_answered_of_opened_payloads_is_not_answered_again_once_locked(
    mac: Sealing, database: asyncpg.Connection
) -> None:
    path, key = f"/v1/scopes/{mac.scope}/intents", {"Idempotency-Key": "k"}
    await mac.push()
    read(await put_keys(mac.client, mac.scope))
    told_of_a_stream = f'{{"statuses":[{{"id":"{MARKER}","op_id":"op-1"}}]}}'.encode()
    await database.execute(
        "insert into idempotency (scope, key, request, answer, until_ms) "
        "select id, 'k', 'r', $2, 1::bigint << 60 from scope where slug = $1",
        mac.scope,
        told_of_a_stream,
    )
    run = {"writer": "web", "agent_id": MARKER, "run_id": MARKER + "2", "epoch": 1}
    for _ in range(2):
        told = read(await mac.client.post(path, json={**run, "status": "failed"}, headers=key))
        assert told == {"recorded": False, "reason": "already_committed"}
    kept = {"Idempotency-Key": "written"}
    written = read(await mac.client.post(path, json={**run, "status": "committed"}, headers=kept))
    read(await delete_keys(mac.client, mac.scope))
    refused(await mac.client.post(path, json={**run, "status": "failed"}, headers=key), "sealed_scope")
    assert read(await mac.client.post(path, json={**run, "status": "committed"}, headers=kept)) == written
    left = "select count(*) from idempotency i join scope s on s.id = i.scope where s.slug = $1"
    assert await database.fetchval(left, mac.scope) == 1


async def test_what_a_hosted_writer_sent_cannot_be_tried_out(mac: Sealing, database: asyncpg.Connection) -> None:
    await mac.push()
    read(await put_keys(mac.client, mac.scope))
    turn = b'{"writer":"web","conversation_id":"c","role":"user","content":"yes"}'
    read(await mac.client.post(f"/v1/scopes/{mac.scope}/turns", content=turn, headers={"Idempotency-Key": "a-key"}))
    kept = await database.fetchval("select request from idempotency where key = $1", sha256(b"a-key").digest())
    assert kept not in (sha256(turn).digest(), sha256(b"turns " + turn).digest())


async def test_without_the_orgs_key_nothing_is_written_for_it(admin: httpx.AsyncClient, scope: str) -> None:
    read(await put_keys(admin, scope, {"audiences": {"personal": "11" * 32}}))
    body = {"writer": "web", "ops": [{"surface": "knowledge", "payload": {}, "scope": {"shared": {"org": "acme"}}}]}
    refused(await admin.post(f"/v1/scopes/{scope}/hosted/append", json=body), "sealed_scope")
    body["ops"] = [{"surface": "knowledge", "payload": {"id": "a"}}]
    read(await admin.post(f"/v1/scopes/{scope}/hosted/append", json=body))


async def test_no_key_or_passphrase_is_logged(mac: Sealing, server: RunningServer) -> None:
    await mac.push()
    for body in ({"passphrase": PASSPHRASE, "user": "eve"}, {"audiences": {"personal": "ab" * 32}}):
        refused(await put_keys(mac.client, mac.scope, body), "wrong_key")
    read(await put_keys(mac.client, mac.scope))
    log = "".join(server.log)
    assert not re.search("|".join((PASSPHRASE, "ab" * 32, master().hex())), log)
