"""examples/failover.py: executors that die anywhere, and an effect that happens once (run-ledger.md §12)."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.server import RunningServer
from tests.fixtures.tokens import issue_token

EXAMPLE = Path(__file__).parents[2] / "examples" / "failover.py"
EVENTS = (
    "run_started", "context_built", "model_requested", "model_responded", "tool_call_proposed", "policy_evaluated",
    "tool_started", "effect", "tool_finished", "run_finished",
)  # fmt: skip
POINTS = ["after lease", *(f"{when} {event}" for event in EVENTS for when in ("before", "after"))]
#: Between these the effect may have happened.
DOUBTFUL = POINTS[POINTS.index("after tool_started") : POINTS.index("before tool_finished") + 1]
DONE, IN_DOUBT = 0, 3


class Job:
    """One run, and executors of it in processes of their own."""

    def __init__(self, base: str, scope: str, token: str, effects: Path) -> None:
        self._where = ["--url", base, "--scope", scope, "--run", "job"]
        self._token, self.effects = token, effects

    def start(self, name: str, *more: str) -> subprocess.Popen[str]:
        asked = ["run", *self._where, "--name", name, "--effects", str(self.effects), "--ttl-ms", "1", *more]
        return self._process(asked)

    def run(self, name: str, *more: str) -> int:
        process = self.start(name, *more)
        process.communicate(timeout=60)
        return process.returncode

    def decide(self, *, it_happened: bool) -> None:
        process = self._process(["decide", *self._where, "--it-happened" if it_happened else "--it-did-not"])
        process.communicate(timeout=60)
        assert process.returncode == DONE

    def _process(self, asked: list[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(EXAMPLE), *asked],
            env={**os.environ, "FOLDPOINT_TOKEN": self._token},
            stdout=subprocess.PIPE,
            text=True,
        )

    def count(self) -> int:
        """How often the effect happened."""
        return len(self.effects.read_text().splitlines()) if self.effects.exists() else 0


@pytest.fixture
async def job(server: RunningServer, scope: str, tmp_path: Path) -> Job:
    token = await issue_token(server.database_url, "executor", scope)
    return Job(server.base, scope, token.secret, tmp_path / "sent.txt")


def test_one_executor_alone_passes_each_point(job: Job) -> None:
    assert job.run("one") == DONE
    assert job.count() == 1
    assert job.run("two") == DONE
    assert job.count() == 1


@pytest.mark.parametrize("point", POINTS)
def test_an_executor_dies_and_another_carries_on(job: Job, point: str) -> None:
    """The effect happens once, or the run is in doubt and a person, who can look, decides."""
    assert job.run("one", "--die", point) == -signal.SIGKILL
    outcome = job.run("two")
    assert outcome == (IN_DOUBT if point in DOUBTFUL else DONE)
    if outcome == IN_DOUBT:
        job.decide(it_happened=job.count() == 1)
        assert job.run("two") == DONE
    assert job.count() == 1


@pytest.mark.parametrize("point", ["before tool_started", "before effect", "after effect", "before tool_finished"])
def test_an_executor_sleeps_through_its_lease_and_wakes(job: Job, point: str) -> None:
    """What it starts now is refused; what it has started, it ends, and that is recorded."""
    one = job.start("one", "--stop", point)
    _, status = os.waitpid(one.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    assert job.run("two") == (IN_DOUBT if point in DOUBTFUL else DONE)
    one.send_signal(signal.SIGCONT)
    output, _ = one.communicate(timeout=60)
    assert "lost the lease" in output
    assert one.returncode == DONE
    assert job.count() == 1


def test_two_executors_at_once(job: Job) -> None:
    """They take the lease from each other all the time; who finds a start that is not its own leaves it alone."""
    both = [job.start(name) for name in ("one", "two")]
    for process in both:
        process.communicate(timeout=60)
    outcomes = {process.returncode for process in both}
    assert DONE in outcomes
    assert outcomes <= {DONE, IN_DOUBT}
    assert job.count() == 1
    assert job.run("three") == DONE
