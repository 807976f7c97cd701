"""Processes that hold keys: no core dump is left of them, and what a person gives them is checked before it is used."""

import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from app.database import create_engine
from app.key_file import KeyFile
from app.services.keys.vault import Vault
from app.sql import scope_keys
from app.sql.transactions import exclusive
from tests.fixtures.command import COMMAND, Served, environment
from tests.fixtures.sealing import ORG_KEYS, PASSPHRASE, Sealing, delete_keys, given, master, owner, put_keys
from tests.fixtures.server import RunningServer, key_file
from tests.wire.answers import read, refused


@pytest.fixture
def cores_allowed() -> Iterator[None]:
    """Whatever this starts may leave core dumps as large as they come, if it does not forbid them itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if hard == 0:
        pytest.skip("core dumps are forbidden here to everybody")
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))


def core_limits(pid: int) -> list[str]:
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    return next(line.split()[4:6] for line in lines if line.startswith("Max core file size"))


@pytest.mark.usefixtures("cores_allowed")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_server_process_leaves_no_core_dump(database_url: str, serve: Callable[..., Served], workers: int) -> None:
    served = serve(workers=workers, database_url=database_url, key_file=str(key_file()))
    own = served.process.pid
    children = [int(pid) for pid in Path(f"/proc/{own}/task/{own}/children").read_text().split()]
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in children}
    holders = [own] if workers == 1 else [pid for pid, command in commands.items() if "spawn_main" in command]
    assert len(holders) == workers
    assert [core_limits(pid) for pid in holders] == [["1", "1"]] * workers


@pytest.mark.parametrize("before", [0, 1, 4096])
def test_a_process_that_may_leave_none_starts_all_the_same(before: int) -> None:
    code = (
        "import resource as r, os\n"
        f"r.setrlimit(r.RLIMIT_CORE, ({before}, {before}))\n"
        "os.getuid() or os.setuid(65534)\n"
        "from app.core_dumps import leave_none; leave_none()\n"
        "print(r.getrlimit(r.RLIMIT_CORE))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == f"{(min(before, 1), min(before, 1))}\n"


async def test_keys_that_another_process_let_go_of_are_let_go_of_unasked(
    start_server: Callable[..., RunningServer], database_url: str
) -> None:
    engine, vault = create_engine(database_url, 1), Vault(KeyFile.read(key_file()))
    async with start_server().client() as client:
        mac = Sealing(client, "user_ada", "mac")
        mac.write_mixed(9)
        await mac.push()
        for change in (delete_keys(client, mac.scope), put_keys(client, mac.scope, given(owner()))):
            read(await put_keys(client, mac.scope))
            async with exclusive(engine) as pg:
                await vault.keyring(pg, 1, (await scope_keys.held(pg, 1)).generation)
                await vault.forget_changed(pg)
                assert vault._held.keys() == {1}
            read(await change)
            async with exclusive(engine) as pg:
                await vault.forget_changed(pg)
            assert not vault._held
    await engine.dispose()


@pytest.mark.parametrize("gone", ["scope_key", "record", "op"])
async def test_no_key_or_passphrase_is_in_the_trace_of_a_failure(
    start_server: Callable[..., RunningServer], database_url: str, gone: str
) -> None:
    server = start_server()
    async with server.client() as client:
        mac = Sealing(client, "user_ada", "mac")
        mac.write_mixed(9)
        await mac.push()
        database = await asyncpg.connect(database_url)
        await database.execute(f"alter table {gone} rename to {gone}_gone")
        await database.close()
        bodies: list[dict[str, Any]] = [{"passphrase": PASSPHRASE, "user": "ada"}, given(owner())]
        for body in bodies:
            response = refused(await put_keys(client, mac.scope, body), "internal")
            assert PASSPHRASE not in str(response)
    server.stop()
    log = "".join(server.log)
    assert "unexpected failure" in log
    keys = [master(), *ORG_KEYS.values(), owner().newest_key("personal").key, owner().newest_key("shared:acme").key]
    for secret in [PASSPHRASE, *(key.hex() for key in keys), *(repr(key) for key in keys)]:
        assert secret not in log


def unlock(typed: bytes, user: str, database_url: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [COMMAND, "scope", "unlock", "--scope", "user:ada", "--user", user],
        env=environment(database_url=database_url, key_file=str(key_file())),
        input=typed,
        capture_output=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("typed", "user"),
    [(b"", "ada"), (b"\n", "ada"), (b"\xff" + PASSPHRASE.encode(), "ada"), (PASSPHRASE.encode(), "")],
)
def test_what_is_no_passphrase_is_refused_without_a_word_of_it(database_url: str, typed: bytes, user: str) -> None:
    done = unlock(typed, user, database_url)
    told = done.stdout + done.stderr
    assert done.returncode == 2, told
    assert b"Traceback" not in told
    assert PASSPHRASE.encode() not in told


def test_what_a_crash_left_of_making_a_key_file_is_in_nobodys_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container the process that starts again has the same number."""
    with monkeypatch.context() as crash:
        crash.setattr("os.link", _crash)
        crash.setattr(Path, "unlink", lambda _: None)
        with pytest.raises(OSError, match="crash"):
            KeyFile.make(tmp_path / "key")
    assert len(list(tmp_path.iterdir())) == 1
    assert KeyFile.make(tmp_path / "key") == KeyFile.read(tmp_path / "key")


def _crash(*_: object) -> None:
    raise OSError("crash")
