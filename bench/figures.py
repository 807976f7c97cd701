"""The figures of issue 4's table: what each is, and what it must reach."""

from typing import NamedTuple


class NotThere(RuntimeError):
    """What a figure needs is not here, and the message says what."""


class Figure(NamedTuple):
    """`unit` is that of both sides of the ratio; a figure in MB is no ratio."""

    name: str
    what: str
    unit: str
    #: None of a peer: there it is told how we compare, whatever comes out.
    must: float | None
    aim: float | None
    more_is_better: bool

    def met(self, value: float, bound: float | None) -> bool:
        if bound is None:
            return True
        return value >= bound if self.more_is_better else value <= bound


class Ratio(NamedTuple):
    """One measurement: ours beside what it is compared with, in the figure's unit."""

    ours: float
    theirs: float = 1.0

    @property
    def value(self) -> float:
        return self.ours / self.theirs


#: What a row gives per round.
Sample = dict[str, Ratio]

UNNEST = "asyncpg unnest of the same rows into an identical op table"
BARE = "a bare endpoint with the same authentication that selects one row"

MUST = (
    Figure("P1a", f"push of chat, 1,000-op batches, one connection ÷ {UNNEST}", "ops/s", 0.5, 0.75, True),
    Figure("P1b", "the same, a mix of all surfaces, 60 % chat", "ops/s", 0.3, 0.45, True),
    Figure("P1c", "the same, new keyed ids only", "ops/s", 0.25, 0.4, True),
    Figure("P2a", "real device client, 100,000 ops: push ÷ the crate's loopback", "ops/s", 5, 9, True),
    Figure("P2b", "there, the median of the last ten batches ÷ of the first ten", "ms", 1.3, 1.1, False),
    Figure("P2c", "the same push with 10,000 ops, where the loopback is at its best", "ops/s", 1.0, 1.5, True),
    Figure("P3a", "real device client, 100,000 ops: pull ÷ the crate's loopback", "ops/s", 0.8, 1.0, True),
    Figure("P3b", "growth of the server's memory while that is pulled", "MB", 64, 16, False),
    Figure("P4a", "tail transcript (50) of a 100,000-turn conversation ÷ of a 1,000-turn one", "ms", 1.2, 1.05, False),
    Figure("P4b", f"the same ÷ {BARE}", "ms", 2.5, 1.5, False),
    Figure("P5", "resume of 10,000 turns over HTTP ÷ the crate in process", "ms", 8, 4, False),
    Figure("P6", f"committed-run look-ups, 32 connections ÷ {BARE}", "requests/s", 0.7, 0.9, True),
    Figure("P7a", "push of 1,000 chat ops into a scope of 1M ops ÷ into an empty one", "ms", 1.25, 1.1, False),
    Figure("P7b", "the same, new keyed ids only", "ms", 1.5, 1.25, False),
    Figure("P8", "state hash of 100,000 mixed ops after a change ÷ the crate's alone", "ms", 1.0, 0.3, False),
    Figure("P9a", "checkpoint of 1M records: the server's peak memory", "MB", 200, 120, False),
    Figure("P9b", "push p99 meanwhile ÷ without", "ms", 2, 1.2, False),
    Figure("P10a", "push on two connections to two scopes ÷ on one", "ops/s", 0.9, 1.2, True),
    Figure("P10b", "single-op pushes of 16 devices, one scope ÷ raw one-row commits of 16", "ops/s", 0.25, 0.4, True),
    Figure("P10c", "the same in 16 scopes", "ops/s", 0.1, 0.25, True),
    Figure("P11", "read of a run ledger of 100,000 records after a new one ÷ of one of 1,000", "ms", 1.5, 1.1, False),
)  # fmt: skip

PEERS = {
    "accordsync": "accordsync-fastapi over HTTP, a record a message",
    "accordsync-16": "accordsync-fastapi over HTTP, sixteen records a push, its best case",
    "eventsourcing": "eventsourcing's PostgresApplicationRecorder in process",
    "langgraph": "LangGraph's PostgresSaver in process",
    "pgqueuer": "pgqueuer in process",
    "dbos": "DBOS in process, a step a message",
    "atuin": "atuin-server over HTTP",
    "unnest": "raw PostgreSQL: unnest into a table of nine columns",
}
#: What the peers have a call for.
APPENDS = {peer: f"{peer} append" for peer in PEERS}
READS = {peer: f"{peer} read" for peer in PEERS if peer != "pgqueuer"}
PEER_FIGURES = [
    Figure(names[peer], f"{what}, over HTTP ÷ {PEERS[peer]}", "messages/s", None, None, True)
    for peer in PEERS
    for names, what in ((APPENDS, "durable appends, 256 a call"), (READS, "reads of whole streams"))
    if peer in names
]
FIGURES = (*MUST, *PEER_FIGURES)

BY_NAME = {figure.name: figure for figure in FIGURES}


def figures_of(peer: str) -> tuple[str, ...]:
    return tuple(names[peer] for names in (APPENDS, READS) if peer in names)
