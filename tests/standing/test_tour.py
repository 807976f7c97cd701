"""The README's five minutes with curl, typed into a real shell against a real server."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.fixtures.command import COMMAND
from tests.fixtures.server import RunningServer

ROOT = Path(__file__).parents[2]
STEP = re.compile(
    r"<!-- tour: run -->\n```sh\n(?P<commands>.*?)```\n(?:<!-- tour: prints (?P<prints>.*?) -->)?", re.DOTALL
)
END = "--- end of step ---"


@pytest.mark.skipif(shutil.which("curl") is None, reason="the tour is typed with curl, and there is none here")
def test_the_tour_ends_in_a_resumed_conversation(server: RunningServer) -> None:
    readme = (ROOT / "README.md").read_text()
    steps = list(STEP.finditer(readme))
    script = f"\necho '{END}'\n".join(step["commands"] for step in steps)
    script = script.replace("http://127.0.0.1:8000", server.base).replace("bin/foldpoint", str(COMMAND))
    ran = subprocess.run(
        ["bash", "-eu", "-c", script],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "FOLDPOINT_DATABASE_URL": server.database_url},
        capture_output=True,
        text=True,
        check=True,
    )
    printed = ran.stdout.split(END)
    assert len(printed) == len(steps) >= 6
    for step, output in zip(steps, printed, strict=True):
        assert (step["prints"] or "") in output
