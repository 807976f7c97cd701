"""Stored checkpoints: their text in compressed chunks, their frontiers, and which is latest and base."""

import re
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import NamedTuple

import zstandard

from app.sql.keys import op_id_text, raw_op_id
from app.sql.transactions import Driver, Row
from foldpoint.frontier import Covered
from foldpoint.hlc import Hlc

ADDRESS = re.compile(r"ckpt-[0-9a-f]{32}")
#: Canonical text of one chunk, before compression.
CHUNK_BYTES = 256 * 1024


class Stored(NamedTuple):
    """A stored checkpoint, without its text. `size` is the length of the canonical text in bytes."""

    id: int
    hash: str
    state_hash: str
    origin: str
    exact: bool
    size: int
    created_at: datetime


COLUMNS = "id, hash, state_hash, origin, exact, size, created_at"
BY_HASH = f"select {COLUMNS} from checkpoint where scope = $1 and hash = $2"
POINTED = f"select {COLUMNS} from checkpoint where id = (select %s from scope where id = $1)"
LISTED = f"select {COLUMNS} from checkpoint where scope = $1 and id < $2 order by id desc limit $3"


async def by_hash(pg: Driver, scope: int, hash_: str) -> Stored | None:
    return _stored(await pg.fetchrow(BY_HASH, scope, hash_)) if ADDRESS.fullmatch(hash_) else None


async def latest(pg: Driver, scope: int) -> Stored | None:
    return _stored(await pg.fetchrow(POINTED % "latest_checkpoint", scope))


async def base(pg: Driver, scope: int) -> Stored | None:
    """The checkpoint that covers every device's floor."""
    return _stored(await pg.fetchrow(POINTED % "base_checkpoint", scope))


async def latest_hash(pg: Driver, scope: int) -> str | None:
    found = await latest(pg, scope)
    return found and found.hash


async def size_of(pg: Driver, checkpoint: int) -> int:
    return int(await pg.fetchval("select size from checkpoint where id = $1", checkpoint))


async def listed(pg: Driver, scope: int, before: int, limit: int) -> list[Stored]:
    """Newest first."""
    return [Stored(*row.values()) for row in await pg.fetch(LISTED, scope, before, limit)]


def _stored(row: Row | None) -> Stored | None:
    return None if row is None else Stored(*row.values())


FRONTIER = """
select f.device, d.id as device_id, f.seq, f.op_id, f.wall_ms, f.counter
from checkpoint_frontier f join device d on d.no = f.device
where f.checkpoint = $1
"""


async def frontier(pg: Driver, checkpoint: int) -> dict[str, Covered]:
    """What a checkpoint covers, by device id."""
    return dict(_covered(row) for row in await pg.fetch(FRONTIER, checkpoint))


def _covered(row: Row) -> tuple[str, Covered]:
    device = row["device_id"].decode()
    hlc = Hlc(row["wall_ms"], row["counter"], device)
    return device, Covered(row["seq"], hlc, op_id_text(row["op_id"]))


async def seqs(pg: Driver, checkpoint: int) -> dict[int, int]:
    """What a checkpoint covers, as device number to seq."""
    rows = await pg.fetch("select device, seq from checkpoint_frontier where checkpoint = $1", checkpoint)
    return {row["device"]: row["seq"] for row in rows}


EXACT_FRONTIERS = """
select c.id, f.device, f.seq from checkpoint c left join checkpoint_frontier f on f.checkpoint = c.id
where c.scope = $1 and c.exact
"""
COVERAGE = """
select f.device, max(f.seq) as seq from checkpoint c join checkpoint_frontier f on f.checkpoint = c.id
where c.scope = $1 group by f.device
"""


async def exact_frontiers(pg: Driver, scope: int) -> dict[int, dict[int, int]]:
    """Every exact checkpoint's frontier, as device number to seq."""
    frontiers: dict[int, dict[int, int]] = {}
    for row in await pg.fetch(EXACT_FRONTIERS, scope):
        found = frontiers.setdefault(row["id"], {})
        if row["device"] is not None:
            found[row["device"]] = row["seq"]
    return frontiers


async def coverage(pg: Driver, scope: int) -> dict[int, int]:
    """The highest seq of each device that some stored checkpoint covers (car-sync.md §11.8)."""
    return {row["device"]: row["seq"] for row in await pg.fetch(COVERAGE, scope)}


ADD = """
insert into checkpoint (scope, hash, state_hash, origin, size) values ($1, $2, $3, $4, $5)
on conflict (scope, hash) do nothing returning id
"""
ADD_FRONTIER = """
insert into checkpoint_frontier (checkpoint, device, seq, op_id, wall_ms, counter)
select $1, * from unnest($2::int[], $3::bigint[], $4::bytea[], $5::bigint[], $6::bigint[])
"""
REPLACE_FIRST = "update checkpoint_chunk set body = $2 where checkpoint = $1 and no = 0"
ADD_CHUNK = "insert into checkpoint_chunk (checkpoint, no, starts_at, body) values ($1, $2, $3, $4)"
FINISH = "update checkpoint set hash = $2, state_hash = $3, size = $4 where id = $1"
REMOVE = "delete from checkpoint where id = $1"


async def add(pg: Driver, scope: int, hash_: str, state_hash: str, size: int) -> int | None:
    """A device's checkpoint, still without text and frontier; None if it is stored already."""
    found = await pg.fetchval(ADD, scope, hash_, state_hash, "device", size)
    return None if found is None else int(found)


async def begin(pg: Driver, scope: int, hash_: str) -> int:
    """A checkpoint of the server's, whose hashes and size `finish` will write."""
    return int(await pg.fetchval(ADD, scope, hash_, "", "server", 0))


async def finish(pg: Driver, scope: int, checkpoint: int, hash_: str, state_hash: str, size: int) -> int:
    """Give a checkpoint its name; if an equal one is stored, that one stays and is returned."""
    equal = await by_hash(pg, scope, hash_)
    if equal is not None:
        await pg.execute(REMOVE, checkpoint)
        return equal.id
    await pg.execute(FINISH, checkpoint, hash_, state_hash, size)
    return checkpoint


async def add_frontier(pg: Driver, checkpoint: int, covered: Mapping[int, Covered]) -> None:
    """Write what a checkpoint covers, by device number."""
    rows = [(no, c.seq, raw_op_id(c.head), *c.hlc[:2]) for no, c in covered.items()]
    if rows:
        await pg.execute(ADD_FRONTIER, checkpoint, *zip(*rows, strict=True))


class Text:
    """Writes a checkpoint's text chunk by chunk, and knows its length."""

    def __init__(self, pg: Driver, checkpoint: int) -> None:
        self._pg, self._checkpoint = pg, checkpoint
        self._buffer = bytearray()
        self._no = 0
        self.size = 0

    async def write(self, piece: bytes) -> None:
        self._buffer += piece
        while len(self._buffer) >= CHUNK_BYTES:
            await self._flush(CHUNK_BYTES)

    async def finish(self) -> None:
        if self._buffer:
            await self._flush(len(self._buffer))

    async def replace_in_first(self, old: bytes, new: bytes) -> None:
        """Replace bytes near the beginning, now that the text is written, by as many others."""
        row = await self._pg.fetchrow(READ, self._checkpoint, 0, CHUNK_BYTES, self.size)
        assert row is not None
        assert len(old) == len(new)
        body = zstandard.compress(zstandard.decompress(row["body"]).replace(old, new, 1), 3)
        await self._pg.execute(REPLACE_FIRST, self._checkpoint, body)

    async def _flush(self, length: int) -> None:
        body = zstandard.compress(bytes(self._buffer[:length]), 3)
        await self._pg.execute(ADD_CHUNK, self._checkpoint, self._no, self.size, body)
        del self._buffer[:length]
        self._no += 1
        self.size += length


READ = """
select starts_at, body from checkpoint_chunk
where checkpoint = $1 and starts_at > $2::bigint - $3::bigint and starts_at <= $2 and $2 < $4::bigint
"""


async def chunk(pg: Driver, checkpoint: int, start: int, stop: int) -> bytes:
    """The text from `start`, up to the end of the chunk that holds it, or to `stop`; empty past the end."""
    row = await pg.fetchrow(READ, checkpoint, start, CHUNK_BYTES, stop)
    if row is None:
        return b""
    text = zstandard.decompress(row["body"])
    return text[start - row["starts_at"] : stop - row["starts_at"]]


async def text(pg: Driver, checkpoint: int, size: int) -> AsyncIterator[bytes]:
    """The whole text, a chunk at a time."""
    at = 0
    while at < size and (piece := await chunk(pg, checkpoint, at, size)):
        yield piece
        at += len(piece)


POINT = """
update scope set latest_checkpoint = coalesce($2, latest_checkpoint),
    base_checkpoint = coalesce($3, base_checkpoint)
where id = $1
"""


async def point(pg: Driver, scope: int, *, latest: int | None = None, base: int | None = None) -> None:
    """Move the latest or the base pointer, under the scope's lock."""
    await pg.execute(POINT, scope, latest, base)
