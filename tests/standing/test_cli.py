"""The commands as a person runs them, each in its own process."""

import asyncio
import hashlib
import os
import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from app.embedded import EmbeddedPostgres
from app.migrate import head
from tests.fixtures.command import Served, foldpoint

TOKEN = re.compile(r"fp_[A-Za-z0-9_-]{43}")
Serve = Callable[..., Served]


def query(url: str, statement: str) -> list[tuple[Any, ...]]:
    async def run() -> list[tuple[Any, ...]]:
        connection = await asyncpg.connect(url)
        try:
            return [tuple(row) for row in await connection.fetch(statement)]
        finally:
            await connection.close()

    return asyncio.run(run())


def create_token(url: str, *arguments: str) -> str:
    made = foldpoint("token", "create", *arguments, database_url=url)
    assert made.returncode == 0, made.stderr
    return made.stdout.removesuffix("\n")


def status(url: str) -> int:
    return httpx.get(url).status_code


class TestToken:
    def test_the_token_stands_alone_on_standard_output(self, database_url: str) -> None:
        made = foldpoint("token", "create", "--role", "device", "--scope", "acme", database_url=database_url)
        assert TOKEN.fullmatch(made.stdout.removesuffix("\n"))
        assert made.stdout.count("\n") == 1
        assert made.stdout.strip() not in made.stderr

    def test_only_its_sha256_is_stored(self, database_url: str) -> None:
        secret = create_token(database_url, "--role", "admin")
        stored = query(database_url, "select token::text, hash, octet_length(hash) from token")
        assert stored[0][1:] == (hashlib.sha256(secret.encode()).digest(), 32)
        assert secret not in stored[0][0]

    def test_every_grant_is_kept(self, database_url: str) -> None:
        create_token(
            database_url, "--role", "device", "--scope", "acme", "--device", "läptop/1", "--account", "a1", "--granter"
        )
        kept = query(
            database_url, "select role, slug, device, account, granter from token join scope on scope = scope.id"
        )
        assert kept == [("device", "acme", "läptop/1".encode(), "a1", True)]

    def test_a_raw_name_makes_its_scope_and_binds_to_it(self, database_url: str) -> None:
        for name in ("user:matt", "user:matt", "user_matt"):
            create_token(database_url, "--role", "reader", "--scope", name)
        assert query(database_url, "select slug, name from scope") == [("user_matt", b"user:matt")]

    def test_a_slug_binds_to_the_first_raw_name_that_comes_later(self, database_url: str) -> None:
        create_token(database_url, "--role", "reader", "--scope", "user_matt")
        create_token(database_url, "--role", "reader", "--scope", "user:matt")
        assert query(database_url, "select slug, name from scope") == [("user_matt", b"user:matt")]

    def test_another_raw_name_with_the_same_slug_is_refused(self, database_url: str) -> None:
        create_token(database_url, "--role", "reader", "--scope", "user:matt")
        refused = foldpoint("token", "create", "--role", "reader", "--scope", "user.matt", database_url=database_url)
        assert refused.returncode == 1
        assert refused.stdout == ""
        assert "'user.matt' would travel as 'user_matt', which already stands for 'user:matt'" in refused.stderr
        assert query(database_url, "select count(*) from token") == [(1,)]

    @pytest.mark.parametrize("account", ["acc.ada", "acc ada", "ädä", "", "a" * 513])
    def test_an_account_that_would_travel_as_another_is_refused(self, database_url: str, account: str) -> None:
        arguments = ("--role", "device", "--scope", "acme", "--account", account)
        refused = foldpoint("token", "create", *arguments, database_url=database_url)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr.startswith("foldpoint: account: ")
        assert "Traceback" not in refused.stderr
        assert query(database_url, "select (select count(*) from token), (select count(*) from scope)") == [(0, 0)]

    @pytest.mark.parametrize(
        "arguments",
        [
            ("--role", "admin", "--scope", "acme"),
            ("--role", "device"),
            ("--role", "reader", "--scope", ""),
            ("--role", "reader", "--scope", "acme", "--device", "d"),
            ("--role", "owner", "--scope", "acme"),
        ],
    )
    def test_a_contradiction_is_a_usage_error(self, database_url: str, arguments: tuple[str, ...]) -> None:
        refused = foldpoint("token", "create", *arguments, database_url=database_url)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert query(database_url, "select count(*) from token") == [(0,)]

    def test_the_list_shows_neither_tokens_nor_hashes(self, database_url: str) -> None:
        secrets = [
            create_token(database_url, "--role", "device", "--scope", "user:matt", "--device", "phone"),
            create_token(database_url, "--role", "admin", "--account", "a1", "--granter"),
        ]
        listed = foldpoint("token", "list", database_url=database_url).stdout
        lines = listed.splitlines()
        assert lines[0].split() == ["id", "role", "scope", "device", "grants", "created", "revoked"]
        assert lines[1].split()[:4] == ["1", "device", "user:matt", "phone"]
        assert "every scope" in lines[2]
        assert "account=a1 granter" in lines[2]
        for secret in secrets:
            assert secret not in listed
            assert hashlib.sha256(secret.encode()).hexdigest() not in listed

    def test_revoking_ends_a_token_once(self, database_url: str) -> None:
        create_token(database_url, "--role", "admin")
        assert foldpoint("token", "revoke", "1", database_url=database_url).returncode == 0
        first = query(database_url, "select revoked_at from token")
        assert first != [(None,)]
        assert foldpoint("token", "revoke", "1", database_url=database_url).returncode == 0
        assert query(database_url, "select revoked_at from token") == first

    def test_revoking_a_token_that_is_not_there_says_so(self, database_url: str) -> None:
        refused = foldpoint("token", "revoke", "7", database_url=database_url)
        assert refused.returncode == 2
        assert "there is no token 7" in refused.stderr


class TestMigrate:
    def test_an_empty_database_gets_the_schema(self, empty_database_url: str) -> None:
        assert foldpoint("migrate", database_url=empty_database_url).returncode == 0
        assert query(empty_database_url, "select version_num from alembic_version") == [(head(),)]

    @pytest.mark.parametrize("command", [("migrate",), ("serve", "--port", "0"), ("token", "list")])
    def test_a_newer_schema_is_refused_in_one_line(self, database_url: str, command: tuple[str, ...]) -> None:
        query(database_url, "update alembic_version set version_num = '9999'")
        refused = foldpoint(*command, database_url=database_url)
        assert refused.returncode == 1
        assert re.fullmatch(rf"foldpoint: .*revision 9999.*after {head()}:.*\n", refused.stderr)

    def test_a_database_that_is_not_there_is_named_without_a_traceback(self, database_url: str) -> None:
        refused = foldpoint("migrate", database_url=database_url.replace("foldpoint_", "missing_"))
        assert refused.returncode == 1
        assert re.fullmatch(r'foldpoint: database "missing_\w+" does not exist\n', refused.stderr)

    def test_a_url_that_is_not_postgresql_is_refused_without_being_repeated(self) -> None:
        refused = foldpoint("migrate", database_url="mysql://root:hunter2@db/foldpoint")
        assert refused.returncode == 1
        assert "PostgreSQL only" in refused.stderr
        assert "hunter2" not in refused.stderr


class TestServe:
    def test_it_serves_on_an_embedded_database_and_stops_it_last(self, data_dir: Path, serve: Serve) -> None:
        server = serve("--data-dir", data_dir)
        assert status(f"{server.url}/readyz") == 200
        assert EmbeddedPostgres(data_dir).answers()
        assert server.stop(signal.SIGTERM) == 0
        assert not EmbeddedPostgres(data_dir).answers()

    def test_ctrl_c_stops_it_as_well(self, data_dir: Path, serve: Serve) -> None:
        server = serve("--data-dir", data_dir)
        assert server.stop(signal.SIGINT) == 0
        assert not EmbeddedPostgres(data_dir).answers()

    def test_the_first_start_shows_an_admin_token_and_no_later_one_does(self, data_dir: Path, serve: Serve) -> None:
        first = serve("--data-dir", data_dir)
        shown = TOKEN.findall("".join(first.lines))
        assert len(shown) == 1
        first.stop(signal.SIGTERM)
        second = serve("--data-dir", data_dir)
        digest = hashlib.sha256(shown[0].encode()).digest()
        assert query(EmbeddedPostgres(data_dir).url(), "select role, hash from token") == [("admin", digest)]
        assert TOKEN.findall("".join(second.lines)) == []

    def test_no_admin_token_is_made_when_the_settings_have_one(self, database_url: str, serve: Serve) -> None:
        server = serve(database_url=database_url, admin_token="chosen-by-the-operator")
        assert TOKEN.findall("".join(server.lines)) == []
        assert query(database_url, "select count(*) from token") == [(0,)]

    def test_a_new_admin_token_is_shown_once_the_last_was_revoked(self, database_url: str, serve: Serve) -> None:
        create_token(database_url, "--role", "admin")
        assert TOKEN.findall("".join(serve(database_url=database_url).lines)) == []
        foldpoint("token", "revoke", "1", database_url=database_url)
        assert len(TOKEN.findall("".join(serve(database_url=database_url).lines))) == 1

    def test_servers_that_start_together_on_an_empty_database(self, empty_database_url: str, serve: Serve) -> None:
        servers = [serve(database_url=empty_database_url, workers=2), serve(database_url=empty_database_url)]
        assert [status(f"{server.url}/readyz") for server in servers] == [200, 200]
        assert len(TOKEN.findall("".join(line for server in servers for line in server.lines))) == 1

    def test_commands_share_the_running_embedded_database(self, data_dir: Path, serve: Serve) -> None:
        server = serve("--data-dir", data_dir)
        made = foldpoint("token", "create", "--role", "reader", "--scope", "acme", "--data-dir", data_dir)
        assert TOKEN.fullmatch(made.stdout.strip()), made.stderr
        listed = foldpoint("token", "list", "--data-dir", data_dir).stdout
        assert [line.split()[:2] for line in listed.splitlines()[1:]] == [["1", "admin"], ["2", "reader"]]
        assert status(f"{server.url}/readyz") == 200

    def test_two_servers_share_one_data_directory(self, data_dir: Path, serve: Serve) -> None:
        first, second = serve("--data-dir", data_dir), serve("--data-dir", data_dir)
        assert first.stop(signal.SIGTERM) == 0
        assert status(f"{second.url}/readyz") == 200
        assert second.stop(signal.SIGTERM) == 0
        assert not EmbeddedPostgres(data_dir).answers()

    def test_workers_share_the_database_of_their_parent(self, data_dir: Path, serve: Serve) -> None:
        server = serve("--data-dir", data_dir, workers=2)
        assert status(f"{server.url}/readyz") == 200
        assert server.stop(signal.SIGTERM) == 0
        assert not EmbeddedPostgres(data_dir).answers()

    def test_workers_end_when_their_parent_is_killed(self, data_dir: Path, serve: Serve) -> None:
        server = serve("--data-dir", data_dir, workers=2)
        server.stop(signal.SIGKILL)
        assert server.output.read() == "", "the pipe is still open in a worker"
        restarted = serve("--data-dir", data_dir, "--port", server.url.rpartition(":")[2])
        assert status(f"{restarted.url}/readyz") == 200

    @pytest.mark.parametrize(("host", "token"), [("0.0.0.0", "short"), ("::", "fifteen-letters"), ("127.0.0.1", "")])
    def test_a_weak_admin_token_is_not_exposed(self, data_dir: Path, host: str, token: str) -> None:
        refused = foldpoint("serve", "--host", host, "--data-dir", data_dir, admin_token=token)
        assert refused.returncode == 2
        assert "FOLDPOINT_ADMIN_TOKEN" in refused.stderr
        assert not data_dir.exists()

    def test_a_short_admin_token_will_do_on_this_machine_alone(self, database_url: str, serve: Serve) -> None:
        server = serve("--host", "localhost", database_url=database_url, admin_token="short")
        assert status(f"{server.url}/readyz") == 200

    def test_a_port_in_use_ends_it_and_its_database(self, data_dir: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            refused = foldpoint("serve", "--port", str(port), "--data-dir", data_dir)
        assert refused.returncode != 0
        assert "in use" in refused.stderr
        assert not EmbeddedPostgres(data_dir).answers()

    def test_a_data_directory_beside_a_database_url_is_a_usage_error(self, database_url: str, data_dir: Path) -> None:
        refused = foldpoint("serve", "--data-dir", data_dir, database_url=database_url)
        assert refused.returncode == 2
        assert "FOLDPOINT_DATABASE_URL is set" in refused.stderr

    def test_a_setting_that_cannot_be_read_is_named(self) -> None:
        refused = foldpoint("serve", pool_size="many")
        assert refused.returncode == 1
        assert "FOLDPOINT_POOL_SIZE" in refused.stderr
        assert "Traceback" not in refused.stderr


def test_the_default_data_directory_is_beside_the_caller(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        pytest.skip("as root it is /var/lib/foldpoint, which a test leaves alone")
    monkeypatch.chdir(data_dir.parent)
    assert foldpoint("migrate").returncode == 0
    assert (data_dir.parent / "foldpoint-data" / "data" / "PG_VERSION").exists()
