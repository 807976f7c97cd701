"""`docker-compose.yml` as an admin reads it: the command that makes the key file makes one that serves."""

import re
import subprocess
import sys
from pathlib import Path

from app.key_file import KeyFile

COMPOSE = (Path(__file__).parents[2] / "docker-compose.yml").read_text()


def test_the_key_file_that_it_says_how_to_make_serves_and_is_kept(tmp_path: Path) -> None:
    command = re.search(r"--entrypoint sh server -c \\\n#\s+'(.*)'\n", COMPOSE)
    assert command is not None
    script = command[1].replace("python", sys.executable)

    def make() -> int:
        return subprocess.run(
            ["/bin/sh", "-c", script], env={"FOLDPOINT_KEY_FILE": str(tmp_path / "key")}, check=False
        ).returncode

    assert make() == 0
    made = KeyFile.read(tmp_path / "key")
    assert made is not None
    assert make() != 0
    assert KeyFile.read(tmp_path / "key") == made


def test_it_lies_in_a_volume() -> None:
    path = re.search(r"FOLDPOINT_KEY_FILE: (\S+)", COMPOSE)
    mounted = re.search(r"- keys:(\S+)", COMPOSE)
    assert path is not None
    assert mounted is not None
    assert Path(path[1]).is_relative_to(mounted[1])
    assert f"VOLUME {mounted[1]}" in (Path(__file__).parents[2] / "Dockerfile").read_text()
