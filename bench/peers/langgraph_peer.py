"""LangGraph's PostgresSaver: put_writes, 256 writes of one checkpoint; get_tuple gives a checkpoint with its writes."""

import json
import sys
import uuid

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver

from bench.peers.loop import drive


class LangGraph:
    def __init__(self, saver: PostgresSaver) -> None:
        self._saver = saver
        saver.setup()

    def prepare(self, batches: list[list[str]]) -> None:
        self._writes = [[("messages", json.loads(message)) for message in batch] for batch in batches]
        self._configs = []
        for step in range(len(batches)):
            thread = {"configurable": {"thread_id": str(uuid.uuid4()), "checkpoint_ns": ""}}
            self._configs.append(self._saver.put(thread, empty_checkpoint(), {"source": "loop", "step": step}, {}))

    def append(self) -> None:
        for config, writes in zip(self._configs, self._writes, strict=True):
            self._saver.put_writes(config, writes, "task")

    def read(self) -> int:
        return sum(len(self._saver.get_tuple(config).pending_writes) for config in self._configs)


if __name__ == "__main__":
    with PostgresSaver.from_conn_string(sys.argv[1]) as saver:
        drive(LangGraph(saver))
