"""The README's five minutes with curl and the pages of examples, typed into a real shell against a real server."""

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
PAGES = sorted(page.relative_to(ROOT) for page in (ROOT / "README.md", *ROOT.glob("examples/*/README.md")))


@pytest.mark.skipif(shutil.which("curl") is None, reason="the tour is typed with curl, and there is none here")
@pytest.mark.parametrize("page", PAGES, ids=str)
def test_each_step_of_a_page_prints_what_it_says(server: RunningServer, page: Path, tmp_path: Path) -> None:
    steps = list(STEP.finditer((ROOT / page).read_text()))
    script = f"\necho '{END}'\n".join(step["commands"] for step in steps)
    script = script.replace("http://127.0.0.1:8000", server.base).replace("bin/foldpoint", str(COMMAND))
    ran = subprocess.run(
        ["bash", "-eu", "-c", script],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path), "FOLDPOINT_DATABASE_URL": server.database_url},
        capture_output=True,
        text=True,
        check=True,
    )
    printed = ran.stdout.split(END)
    assert len(printed) == len(steps) >= 6
    for step, output in zip(steps, printed, strict=True):
        assert (step["prints"] or "") in output
