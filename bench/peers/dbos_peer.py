"""DBOS: a step per message, a workflow per batch, as no call takes several steps; list_workflow_steps reads them."""

import os
import sys

from dbos import DBOS

from bench.peers.loop import drive


def say(message: str) -> str:
    return message


class Dbos:
    def __init__(self, url: str) -> None:
        DBOS(config={
            "name": "bench", "system_database_url": url, "run_admin_server": False, "log_level": "ERROR",
        })  # fmt: skip
        step = DBOS.step()(say)

        def speak(batch: list[str]) -> None:
            for message in batch:
                step(message)

        self._speak = DBOS.workflow()(speak)
        DBOS.launch()

    def prepare(self, batches: list[list[str]]) -> None:
        self._batches = batches
        self._workflows: list[str] = []

    def append(self) -> None:
        for batch in self._batches:
            handle = DBOS.start_workflow(self._speak, batch)
            self._workflows.append(handle.workflow_id)
            handle.get_result()

    def read(self) -> int:
        return sum(len(DBOS.list_workflow_steps(workflow)) for workflow in self._workflows)


if __name__ == "__main__":
    drive(Dbos(sys.argv[1]))
    sys.stdout.flush()
    os._exit(0)  # its threads would hold the process
