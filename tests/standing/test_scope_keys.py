"""The key file: who has it answers, who has not says so; and unlocking that was cut short is gone on with."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from app.database import NO_TIMEOUT, create_engine
from app.key_file import NAME, KeyFile, KeyFileError
from app.problems import Problem
from app.services.access import Caller
from app.services.keys.trying_keys import Given
from app.services.keys.unlocking import STEP, Unlocking
from app.services.keys.vault import Vault
from app.services.slots import Slots
from app.services.verification.verifying import verify
from foldpoint.seal import Keyring
from foldpoint.state import state_hash
from tests.fixtures.command import Served, foldpoint
from tests.fixtures.devices import Device
from tests.fixtures.sealing import PASSPHRASE, USER, Sealing, delete_keys, folded, master, put_keys
from tests.fixtures.server import ADMIN_TOKEN, RunningServer, key_file, running_server
from tests.wire.answers import read, refused

SCOPE = "user_ada"
Start = Callable[..., RunningServer]


@pytest.fixture
async def server(start_server: Start) -> RunningServer:
    return start_server()


@pytest.fixture
async def mac(server: RunningServer) -> AsyncIterator[Sealing]:
    """A device on a database of the test's own; what it wrote is pushed."""
    async with server.client() as client:
        mac = Sealing(client, SCOPE, "mac")
        mac.write_mixed(40)
        await mac.push()
        yield mac


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


async def hash_at(server: RunningServer) -> httpx.Response:
    async with server.client() as client:
        return await client.get(f"/v1/scopes/{SCOPE}/state/hash")


class TestKeyFile:
    def test_it_is_private_and_reads_back(self, tmp_path: Path) -> None:
        made = KeyFile.make(tmp_path / "key")
        assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
        assert KeyFile.read(tmp_path / "key") == made
        assert made.key.hex() not in repr(made)
        assert [entry.name for entry in tmp_path.iterdir()] == ["key"]

    def test_one_that_is_there_is_never_made_again(self, tmp_path: Path) -> None:
        made = KeyFile.make(tmp_path / "key")
        with pytest.raises(FileExistsError):
            KeyFile.make(tmp_path / "key")
        assert KeyFile.read(tmp_path / "key") == made

    @pytest.mark.parametrize("text", ["", "00" * 31, "00" * 33, "zz" * 32, "ä" * 64])
    def test_what_is_no_key_is_refused_without_a_word_of_it(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "key").write_text(text)
        (tmp_path / "key").chmod(0o600)
        with pytest.raises(KeyFileError) as error:
            KeyFile.read(tmp_path / "key")
        assert not text or text not in str(error.value)

    def test_one_that_others_may_read_is_refused(self, tmp_path: Path) -> None:
        KeyFile.make(tmp_path / "key")
        for mode in (0o640, 0o604):
            (tmp_path / "key").chmod(mode)
            with pytest.raises(KeyFileError, match="chmod"):
                KeyFile.read(tmp_path / "key")
        assert KeyFile.read(tmp_path / "no-such-file") is None

    def test_a_keyring_opens_for_its_own_scope_under_its_own_file_alone(self, tmp_path: Path) -> None:
        one, other = Vault(KeyFile.make(tmp_path / "one")), Vault(KeyFile.make(tmp_path / "other"))
        stored = one.seal(1, Keyring(bytes(32)))
        assert one.read(1, stored) == Keyring(bytes(32))
        for reader, scope, kept in (
            (other, 1, stored),
            (Vault(), 1, stored),
            (one, 2, stored),
            (one, 1, stored._replace(sealed=stored.sealed[:-1])),
        ):
            with pytest.raises(Problem) as problem:
                reader.read(scope, kept)
            assert (problem.value.code, problem.value.status) == ("sealed_scope", 503)
        assert bytes(32).hex().encode() not in stored.sealed


def other_key(tmp_path: Path) -> str:
    KeyFile.make(tmp_path / "other")
    return str(tmp_path / "other")


@pytest.mark.parametrize("kind", ["none", "missing", "another"])
async def test_a_process_without_the_key_file_answers_and_folds_nothing(
    mac: Sealing, start_server: Start, tmp_path: Path, kind: str
) -> None:
    read(await put_keys(mac.client, SCOPE))
    paths = {"none": "", "missing": str(tmp_path / "missing"), "another": other_key(tmp_path)}
    blind = start_server(key_file=paths[kind])
    base, run = f"/v1/scopes/{SCOPE}", {"agent": "ada", "run": "run-0"}
    turn = {"writer": "web", "conversation_id": "c", "role": "user", "content": "x"}
    async with blind.client() as client:
        for response in [
            await client.get(f"{base}/state"),
            await client.get(f"{base}/state/hash"),
            await client.get(f"{base}/state", params={"at": '{"mac":3}'}),
            await client.get(f"{base}/diff", params={"from": '{"mac":3}', "to": '{"mac":4}'}),
            await client.get(f"{base}/conversations"),
            await client.get(f"{base}/transcript", params={"conversation": "c0"}),
            await client.get(f"{base}/resume", params={"conversation": "c0"}),
            await client.get(f"{base}/log/knowledge"),
            await client.get(f"{base}/registries/config"),
            await client.get(f"{base}/committed-run", params=run),
            await client.get(f"{base}/committed-run", params={**run, "at": '{"mac":3}'}),
            await client.post(f"{base}/committed-runs/lookup", json={"runs": []}),
            await client.get(f"{base}/committed-runs", params=run),
            await client.get(f"{base}/intent", params=run),
            await client.get(f"{base}/agents", params=run),
            await client.post(f"{base}/fence", json={"agent_id": "a", "run_id": "r", "device_id": "d", "epoch": 1}),
            await client.post(f"{base}/turns", json=turn),
            await put_keys(client, SCOPE),
        ]:
            assert "retry-after" not in response.headers
            refused(response, "sealed_scope", 503)
        there = Sealing(client, SCOPE, "mac")
        mac.write_mixed(3)
        refused(await there.offer(mac.ops), "sealed_scope", 503)
        assert len((await there.pull()).json()["ops"]) == 40
        plain = Device(client, SCOPE + "-plain", "mac")
        plain.facts(3)
        await plain.push()
    await mac.push()
    assert read(await hash_at_client(mac))["state_hash"] == state_hash(folded(mac.ops, Keyring(master())))


async def hash_at_client(mac: Sealing) -> httpx.Response:
    return await mac.client.get(f"/v1/scopes/{SCOPE}/state/hash")


async def test_keys_under_a_lost_file_are_let_go_by_locking(mac: Sealing, start_server: Start, tmp_path: Path) -> None:
    read(await put_keys(mac.client, SCOPE))
    fresh = start_server(key_file=other_key(tmp_path))
    async with fresh.client() as client:
        refused(await put_keys(client, SCOPE), "sealed_scope", 503)
        read(await delete_keys(client, SCOPE))
        read(await put_keys(client, SCOPE))
    assert read(await hash_at(fresh))["state_hash"] == state_hash(folded(mac.ops, Keyring(master())))
    refused(await hash_at_client(mac), "sealed_scope", 503)


async def test_two_processes_fold_and_answer_alike(mac: Sealing, start_server: Start) -> None:
    second = start_server()
    async with second.client() as client:
        phone = Sealing(client, SCOPE, "phone")
        read(await put_keys(client, SCOPE))
        mac.write_mixed(20)
        phone.write_mixed(20)
        await mac.push()
        await phone.push()
        expected = state_hash(folded([*mac.ops, *phone.ops], Keyring(master())))
        for one in (client, mac.client):
            assert read(await one.get(f"/v1/scopes/{SCOPE}/state/hash"))["state_hash"] == expected
        read(await delete_keys(mac.client, SCOPE))
        phone.write_mixed(5)
        await phone.push()
        assert read(await hash_at(second))["sealed_ops"] == 85
        read(await put_keys(mac.client, SCOPE))
        assert read(await hash_at(second)) == read(await hash_at_client(mac))


async def begin(database_url: str, steps: int) -> None:
    """Begin to unlock, and open only so much of it, as a process does that dies."""
    engine = create_engine(database_url, 3, **NO_TIMEOUT)
    unlocking = Unlocking(engine, Slots(1, each=1), Vault(KeyFile.read(key_file())))
    await unlocking._begin(Caller(b"", root=True), 1, Keyring(master()))
    for _ in range(steps):
        await unlocking._step(1)
    await engine.dispose()


async def test_a_server_that_starts_goes_on_with_what_was_cut_short(
    database_url: str, database: asyncpg.Connection, start_server: Start
) -> None:
    """Until then the scope takes pushes, answers nothing, and grants no epoch: a fence may still come."""
    with running_server(database_url, key_file="") as blind:
        async with blind.client() as client:
            mac, phone = Sealing(client, SCOPE, "mac"), Sealing(client, SCOPE, "phone")
            mac.write_mixed(3 * STEP)
            await mac.push()
            await begin(database_url, 2)
            refused(await hash_at(blind), "sealed_scope", 503)
            lease = {"device_id": "mac", "ttl_ms": 1_000}
            refused(await client.post(f"/sync/{SCOPE}/leases/ada/acquire", json=lease), "sealed_scope", 503)
            phone.write_mixed(9)
            await phone.push()
    assert await database.fetchval("select sum(upto + 1) from opened") == 2 * STEP
    server = start_server()
    while (response := await hash_at(server)).status_code == 503:
        refused(response, "sealed_scope", 503)
    expected = folded([*mac.ops, *phone.ops], Keyring(master()))
    assert read(response)["state_hash"] == state_hash(expected)
    assert await database.fetchval("select count(*) from opened") == 0


class TestVerify:
    async def faults(self, url: str, vault: Vault | None = None) -> list[str]:
        engine = create_engine(url, 2, **NO_TIMEOUT)
        found = [fault async for fault in verify(engine, 1, vault=vault)]
        await engine.dispose()
        return found

    async def test_what_was_opened_is_compared_with_a_refold_that_opens(self, mac: Sealing, database_url: str) -> None:
        vault = Vault(KeyFile.read(key_file()))
        assert await self.faults(database_url, vault) == []
        read(await put_keys(mac.client, SCOPE))
        assert await self.faults(database_url, vault) == []
        assert await self.faults(database_url) == []
        connection = await asyncpg.connect(database_url)
        await connection.execute("update record set payload = '{}' where surface = 3")
        await connection.execute("delete from run_seen")
        await connection.execute("update scope set sealed_ops = sealed_ops + 1")
        await connection.execute("update scope_key set settled_intents = settled_intents + 1")
        await connection.close()
        found = " ".join(await self.faults(database_url, vault))
        assert "log 'conversation'" in found
        assert "run_seen" in found
        assert "sealed_ops" in found
        assert "do not count" in found
        assert "sealed_ops" in " ".join(await self.faults(database_url))

    async def test_the_command_says_what_it_could_not_check(self, mac: Sealing, database_url: str) -> None:
        read(await put_keys(mac.client, SCOPE))
        asked = {"database_url": database_url}
        without = await asyncio.to_thread(foldpoint, "verify", **asked)
        assert (without.returncode, "no key file here" in without.stderr) == (0, True), without.stderr
        checked = await asyncio.to_thread(foldpoint, "verify", **asked, key_file=str(key_file()))
        assert (checked.returncode, "no key file here" in checked.stderr) == (0, False), checked.stderr


class TestCommands:
    async def test_unlock_and_lock(self, mac: Sealing, database_url: str, tmp_path: Path) -> None:
        settings = {"database_url": database_url, "key_file": str(key_file())}
        keys = tmp_path / "keys.json"
        keys.write_text(json.dumps({"passphrase": PASSPHRASE, "user": USER}))
        done = await asyncio.to_thread(foldpoint, "scope", "unlock", "--scope", "user:ada", "--keys", keys, **settings)
        assert (done.returncode, "32 ops opened, 8 not" in done.stdout) == (0, True), done.stderr
        assert PASSPHRASE not in done.stdout + done.stderr
        expected = state_hash(folded(mac.ops, Keyring(master())))
        assert read(await hash_at_client(mac))["state_hash"] == expected
        done = await asyncio.to_thread(foldpoint, "scope", "lock", "--scope", SCOPE, **settings)
        assert (done.returncode, "unlocked nothing; 0 ops opened, 40 not" in done.stdout) == (0, True), done.stderr
        keys.write_text(json.dumps({"passphrase": "wrong", "user": USER}))
        done = await asyncio.to_thread(foldpoint, "scope", "unlock", "--scope", SCOPE, "--keys", keys, **settings)
        assert (done.returncode, "open none" in done.stderr) == (1, True), done.stderr
        done = await asyncio.to_thread(foldpoint, "scope", "unlock", "--scope", "nobody", "--keys", keys, **settings)
        assert (done.returncode, "there is no scope" in done.stderr) == (2, True), done.stderr


class TestEmbedded:
    async def test_the_key_file_is_made_once_and_a_lost_one_never_again(
        self, data_dir: Path, serve: Callable[..., Served]
    ) -> None:
        started: dict[str, Any] = {"admin_token": ADMIN_TOKEN}
        first = await asyncio.to_thread(serve, "--data-dir", data_dir, **started)
        made = (data_dir / NAME).read_text()
        async with httpx.AsyncClient(base_url=first.url, headers=HEADERS, verify=False, timeout=60) as client:
            mac = Sealing(client, SCOPE, "mac")
            mac.write_mixed(9)
            await mac.push()
            read(await put_keys(client, SCOPE))
        first.stop(15)
        (data_dir / NAME).unlink()
        second = await asyncio.to_thread(serve, "--data-dir", data_dir, **started)
        async with httpx.AsyncClient(base_url=second.url, headers=HEADERS, verify=False, timeout=60) as client:
            refused(await client.get(f"/v1/scopes/{SCOPE}/state/hash"), "sealed_scope", 503)
            assert not (data_dir / NAME).exists()
        assert "There is no key file" in "".join(second.lines)
        second.stop(15)
        (data_dir / NAME).write_text(made)
        (data_dir / NAME).chmod(0o600)
        third = await asyncio.to_thread(serve, "--data-dir", data_dir, **started)
        async with httpx.AsyncClient(base_url=third.url, headers=HEADERS, verify=False, timeout=60) as client:
            found = read(await client.get(f"/v1/scopes/{SCOPE}/state/hash"))
            assert found["state_hash"] == state_hash(folded(mac.ops, Keyring(master())))


HEADERS = {"Authorization": f"Bearer {ADMIN_TOKEN}"}


def test_a_key_file_that_cannot_serve_is_refused_at_start(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret")
    done = foldpoint("serve", "--port", "0", database_url=database_url, key_file=str(tmp_path / "key"))
    assert done.returncode == 1
    assert "key file" in done.stderr
    assert "Traceback" not in done.stderr


def test_nothing_of_what_was_given_is_in_its_repr() -> None:
    given = Given(PASSPHRASE, USER)
    assert PASSPHRASE not in repr(given)
