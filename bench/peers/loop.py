"""How a peer is driven: one JSON line asks for a round, one marked line answers with its figures."""

import json
import sys
import time
from typing import NamedTuple, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

#: Before an answer: the packages print lines of their own.
MARK = "bench-peer "


class Peer(Protocol):
    """A peer; each batch is one call of its own that is durable when it returns."""

    def prepare(self, batches: list[list[str]]) -> None:
        """Bring messages into the form that the calls take; not timed."""

    def append(self) -> None:
        """Every batch of the round."""

    def read(self) -> int:
        """All messages of the round; how many came."""


class ReadsNothing(NotImplementedError):
    """Reading is no read there, but a claim."""


def drive(peer: Peer) -> None:
    """Answer until nobody asks any more."""
    say("ready")
    for line in sys.stdin:
        batches: list[list[str]] = json.loads(line)
        count = sum(map(len, batches))
        peer.prepare(batches)
        began = time.perf_counter()
        peer.append()
        figures = {"append": count / (time.perf_counter() - began)}
        began = time.perf_counter()
        try:
            read = peer.read()
        except ReadsNothing:
            read = 0
        if read:
            assert read == count, (read, count)
            figures["read"] = count / (time.perf_counter() - began)
        say(json.dumps(figures))


def say(text: str) -> None:
    print(f"\n{MARK}{text}", flush=True)


class Server(NamedTuple):
    """The parts of a database's address."""

    host: str
    port: int
    user: str
    password: str
    database: str


def parts(url: str) -> Server:
    """The host may be in the query, when it is the directory of a socket."""
    split = urlsplit(url)
    host = split.hostname or parse_qs(split.query).get("host", ["127.0.0.1"])[0]
    password = unquote(split.password or "")
    return Server(host, split.port or 5432, unquote(split.username or "postgres"), password, split.path.lstrip("/"))
