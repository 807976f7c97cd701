"""The folded state in canonical order, streamed: a page of rows in memory at a time.

Entries come as text: the members of an object of records, some joined by commas in each piece.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from app.sql.intents import COMMITTED, RUNS
from app.sql.keys import PREFIX, is_short
from app.sql.ops import OP_PAYLOAD
from app.sql.pages import event_payload, pages, small
from app.sql.transactions import Driver, Row
from foldpoint.op import stable_key
from foldpoint.state import record_text
from foldpoint.surfaces import BY_NAME, Surface, Tier, tag_of

Members = AsyncIterator[bytes]

EVENTS = f"""
select e.*, d.id as device_id from (
    select op_id, wall_ms, counter, device,
           {small("body", OP_PAYLOAD)}
    from op where scope = $1 and surface = $2 and stream is not null
    union all
    select op_id, wall_ms, counter, device, {small("payload", "payload")} from record where scope = $1 and surface = $2
) e join device d on d.scope = $1 and d.no = e.device
order by op_id
"""
KEYED = f"""
select r.key, r.op_id, r.wall_ms, r.counter, {small("r.payload", "r.payload")}, d.id as device_id
from record r join device d on d.scope = $1 and d.no = r.device
where r.scope = $1 and r.surface = $2 and r.kind = $3
order by r.key
"""
KEYED_PAYLOAD = "select payload from record where scope = $1 and surface = $2 and kind = $3 and key = $4"
KINDS = """
select k.kind, n.name from (select distinct kind from record where scope = $1 and surface = $2) k
left join registry_kind n on n.scope = $1 and n.key = k.kind
"""
AGENTS = "select key, name, fencing_epoch from agent where scope = $1 order by name"
INTENTS = f"""
select i.key, i.op_id, i.wall_ms, i.counter, {small("i.payload", "i.payload")}, d.id as device_id
from intent i join device d on d.scope = $1 and d.no = i.device
where i.scope = $1 and i.agent = $2 and i.view = $3
order by i.key
"""
INTENT_PAYLOAD = "select payload from intent where scope = $1 and agent = $2 and view = $3 and key = $4"
LOGS = sorted(name for name, surface in BY_NAME.items() if surface.tier is Tier.GROW_ONLY)


class Agent(NamedTuple):
    """An agent with its fence; `key` is where its intents are."""

    name: str
    key: bytes
    fencing_epoch: int


async def log(pg: Driver, scope: int, surface: Surface) -> Members:
    """One log's entries, in key order."""
    if surface.event_stream:
        payload_of = event_payload(pg, scope, surface.number)
        async for rows in pages(pg, EVENTS, scope, surface.number, payload_of=payload_of):
            yield b",".join([b'"op:op-%b":%b' % (row["op_id"].hex().encode(), _text(row)) for row in rows])
    else:
        async for piece in _by_key(pg, KEYED, KEYED_PAYLOAD, scope, surface.number, b""):
            yield piece


async def registry_kinds(pg: Driver, scope: int) -> list[tuple[str, Surface, bytes]]:
    """The registries that have records, by tag in byte order, with the slot key of their kind."""
    found = []
    for surface in BY_NAME.values():
        if surface.tier is Tier.REGISTRY:
            for row in await pg.fetch(KINDS, scope, surface.number):
                name = row["kind"] if is_short(row["kind"]) else row["name"]
                found.append((tag_of(surface, name.decode()), surface, row["kind"]))
    return sorted(found, key=lambda entry: entry[0])


def entries(pg: Driver, scope: int, surface: Surface, kind: bytes) -> Members:
    """One registry's entries, in key order."""
    return _by_key(pg, KEYED, KEYED_PAYLOAD, scope, surface.number, kind)


async def agents(pg: Driver, scope: int) -> list[Agent]:
    """Every agent, by name in byte order."""
    rows = await pg.fetch(AGENTS, scope)
    return [Agent(row["name"].decode(), row["key"], int(row["fencing_epoch"])) for row in rows]


def committed(pg: Driver, scope: int, agent: bytes) -> Members:
    return _by_key(pg, INTENTS, INTENT_PAYLOAD, scope, agent, COMMITTED)


def runs(pg: Driver, scope: int, agent: bytes) -> Members:
    return _by_key(pg, INTENTS, INTENT_PAYLOAD, scope, agent, RUNS)


async def _by_key(pg: Driver, query: str, payload: str, *args: Any) -> Members:
    """Entries in the order of their keys. Slot keys have it, but where a long key has neighbours with its prefix.

    `payload` asks for that of one more key.
    """

    async def payload_of(row: Row) -> bytes:
        found: bytes = await pg.fetchval(payload, *args, row["key"])
        return found

    alike = _Alike(payload_of)
    async for rows in pages(pg, query, *args, payload_of=payload_of):
        members: list[bytes] = []
        for row in rows:
            if len(row["key"]) >= PREFIX and alike.take(row):
                continue
            if members and alike:
                yield b",".join(members)
                members = []
            async for member in alike.taken():
                yield member
            if len(row["key"]) < PREFIX:
                members.append(_member(row["key"].decode(), row))
            else:
                alike.take(row)
        if members:
            yield b",".join(members)
    async for member in alike.taken():
        yield member


class _Alike:
    """Entries whose slot keys begin with the same PREFIX bytes, until all of them are known: without their payloads,
    which may be many and are read again when their turn comes."""

    def __init__(self, payload_of: Callable[[Row], Awaitable[bytes]]) -> None:
        self._payload_of = payload_of
        self._entries: list[tuple[str, dict[str, Any]]] = []

    def __bool__(self) -> bool:
        return bool(self._entries)

    def take(self, row: Row) -> bool:
        """Take one more; false if it has another prefix than those that were taken."""
        if self._entries and row["key"][:PREFIX] != self._entries[0][1]["key"][:PREFIX]:
            return False
        place = {name: row[name] for name in ("key", "op_id", "wall_ms", "counter", "device_id")}
        self._entries.append((_key(row), place))
        return True

    async def taken(self) -> Members:
        """What was taken, in the order of the keys."""
        entries, self._entries = self._entries, []
        for key, place in sorted(entries, key=lambda entry: entry[0]):
            yield _member(key, place | {"payload": await self._payload_of(place)})


def _key(row: Row) -> str:
    if is_short(row["key"]):
        return str(row["key"].decode())
    return stable_key(orjson.loads(row["payload"]), row["payload"])


def _member(key: str, row: Row) -> bytes:
    return b"%b:%b" % (orjson.dumps(key), _text(row))


def _text(row: Row) -> bytes:
    op_id = b'"op-%b"' % row["op_id"].hex().encode()
    return record_text(row["wall_ms"], row["counter"], _device_text(row["device_id"]), op_id, row["payload"])


@lru_cache(4096)
def _device_text(device_id: bytes) -> bytes:
    return orjson.dumps(device_id.decode())
