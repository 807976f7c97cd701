"""Keys as an owner gives them, tried on what the scope holds before anything is changed (server.md §9, §11)."""

import asyncio
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Self

from sqlalchemy.ext.asyncio import AsyncEngine

from app.problems import Problem
from app.services.reading.reading_ops import PAGE, advance
from app.sql import devices, ops, scope_keys
from app.sql.ops import Span
from app.sql.transactions import begun, reading
from foldpoint.canonical import Json, Unreadable
from foldpoint.op import Op
from foldpoint.op_text import read_op
from foldpoint.seal import Keyring, Outcome, SealError, opened_payload
from foldpoint.seal.box import KEY_BYTES, read_hex
from foldpoint.seal.keys import audience_of

#: Stretching a passphrase takes 64 MiB: one at a time in a process.
STRETCHING = ThreadPoolExecutor(1, "stretching")
ORG = "org:"
LONGEST = 4_096
MOST_GRANTERS = 100
#: Keys of one scope, as texts: some ten thousand.
MOST_BYTES = 1024 * 1024
#: What no UTF-8 has, and what a command's arguments hold in place of bytes that are none.
SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Given:
    """A passphrase and whose it is, or keys.

    With `granters`, the public keys that may sign an org's keys for this user, those in the scope's directory too.
    """

    passphrase: str | None = field(default=None, repr=False)
    user: str = ""
    granters: tuple[bytes, ...] = ()
    keys: Keyring = field(default_factory=Keyring)

    @classmethod
    def read(cls, value: Json) -> Self:
        """Read `{"passphrase", "user", "granters"?}` or `{"audiences"}`.

        Raises Unreadable, which never says what was sent.
        """
        if not isinstance(value, dict):
            raise Unreadable("expected an object")
        if ("passphrase" in value) == ("audiences" in value):
            raise Unreadable("expected either passphrase and user, or audiences")
        if "audiences" in value:
            try:
                return cls(keys=Keyring.read_audiences(value["audiences"]))
            except SealError as error:
                raise Unreadable(error.detail, "audiences") from None
        return cls(_text(value, "passphrase"), _text(value, "user"), _granters(value.get("granters", [])))

    async def keyring(self) -> Keyring:
        """What they amount to; a passphrase is stretched off the event loop."""
        if self.passphrase is None:
            return self.keys
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(STRETCHING, Keyring.from_passphrase, self.passphrase, self.user)


def _granters(value: Json) -> tuple[bytes, ...]:
    if not isinstance(value, list) or len(value) > MOST_GRANTERS or not all(isinstance(key, str) for key in value):
        raise Unreadable(f"expected up to {MOST_GRANTERS} public keys", "granters")
    try:
        return tuple(read_hex(str(key), f"granter {n}", KEY_BYTES) for n, key in enumerate(value))
    except SealError as error:
        raise Unreadable(error.detail, "granters") from None


def too_many() -> Problem:
    return Problem("too_large", f"the keys of a scope may have {MOST_BYTES} bytes", {"max_keys_bytes": MOST_BYTES})


def _text(value: dict[str, Json], name: str) -> str:
    text = value.get(name)
    if not isinstance(text, str) or not text or len(text) > LONGEST or SURROGATE.search(text):
        raise Unreadable(f"expected a string of 1 to {LONGEST} characters", name)
    return text


async def fitting(engine: AsyncEngine, scope: int, given: Keyring) -> Keyring:
    """The keys as they open something; as they are given where nothing says. Raises wrong_key if none opens anything.

    An org's keys may be those of its envelopes, or what its members share, from which those are derived. Until an
    envelope tells, they are kept as either.
    """
    tried = _Trial(given)
    async with reading(engine) as connection:
        pg = await begun(connection)
        if (await scope_keys.held(pg, scope)).mode == "plain":
            raise Problem("plain_scope", "nothing of a plain scope is sealed")
        chains = (await devices.chains(pg, scope)).items()
        spans = [Span(no, -1, chain.head.seq) for no, chain in chains if chain.head is not None]
        any_op = bool(spans)
        while spans and tried.open_questions:
            texts, reached = await ops.bodies(pg, scope, spans, PAGE)
            await asyncio.to_thread(tried.take, texts)
            spans = advance(spans, reached)
    if any_op and not tried.found:
        raise Problem("wrong_key", "these keys open none of the envelopes of this scope")
    return tried.outcome()


class _Trial:
    """Each key that was given, in the ways it can be meant, until one of them opens something.

    Open questions are by audience, since no other envelope can answer them; None is for the master's, which has all.
    """

    def __init__(self, given: Keyring) -> None:
        self.open_questions: dict[str | None, list[Keyring]] = {}
        self.found: list[Keyring] = []
        if given.master is not None:
            self.open_questions[None] = [Keyring(given.master)]
        for audience, held in given.audiences.items():
            ways = [Keyring(audiences={audience: held})]
            if not isinstance(held, bytes):
                ways.append(Keyring.from_org_keys(audience.removeprefix(ORG), held))
            self.open_questions[audience] = ways

    def take(self, texts: Iterable[bytes]) -> None:
        for op in map(read_op, texts):
            for asked in (None, audience_of(op.scope)):
                way = _opening(self.open_questions.get(asked, ()), op)
                if way is not None:
                    self.found.append(way)
                    del self.open_questions[asked]
            if not self.open_questions:
                return

    def outcome(self) -> Keyring:
        keyring = Keyring()
        for one in [*self.found, *map(_untold, self.open_questions.values())]:
            keyring = keyring.joined(one)
        return keyring


def _untold(ways: list[Keyring]) -> Keyring:
    """What is kept of keys that opened nothing yet."""
    way, *others = ways
    if not others:
        return way
    return Keyring(either={audience: held for audience, held in way.audiences.items() if not isinstance(held, bytes)})


def _opening(ways: Iterable[Keyring], op: Op) -> Keyring | None:
    return next((way for way in ways if opened_payload(op, way).outcome is Outcome.OPENED), None)
