"""Stored checkpoints: what they cover, which is latest and base, and which are kept."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from app.sql.keys import op_id_text, raw_op_id
from app.sql.transactions import Driver, Row
from foldpoint.frontier import Covered
from foldpoint.hlc import Hlc

ADDRESS = re.compile(r"ckpt-[0-9a-f]{32}")
#: How many of the newest are kept, whatever else is (server.md §5).
KEPT = 3


class Stored(NamedTuple):
    """A stored checkpoint, without its text. `size` is the length of the canonical text in bytes.

    `kept` is whether the text is there still; `trims` is how often retention had trimmed the state it is of.
    """

    scope: int
    id: int
    hash: str
    state_hash: str
    origin: str
    kept: bool
    trims: int
    size: int
    created_at: datetime

    @property
    def exact(self) -> bool:
        """Whether its state is the fold of all ops that it covers."""
        return self.trims == 0


#: How often retention had trimmed the state of scope $1, a run that is under way included.
TRIMS = "(select coalesce(max(no), 0) from trim where scope = $1)"
COLUMNS = "scope, id, hash, state_hash, origin, kept, trims, size, created_at"
BY_HASH = f"select {COLUMNS} from checkpoint where scope = $1 and hash = $2"
BY_ID = f"select {COLUMNS} from checkpoint where scope = $1 and id = $2"
POINTED = f"select {COLUMNS} from checkpoint where scope = $1 and id = (select %s from scope where id = $1)"
LISTED = f"select {COLUMNS} from checkpoint where scope = $1 and kept and id < $2 order by id desc limit $3"


async def by_hash(pg: Driver, scope: int, hash_: str) -> Stored | None:
    return _stored(await pg.fetchrow(BY_HASH, scope, hash_)) if ADDRESS.fullmatch(hash_) else None


async def by_id(pg: Driver, scope: int, checkpoint: int) -> Stored | None:
    return _stored(await pg.fetchrow(BY_ID, scope, checkpoint))


async def latest(pg: Driver, scope: int) -> Stored | None:
    return _stored(await pg.fetchrow(POINTED % "latest_checkpoint", scope))


async def base(pg: Driver, scope: int) -> Stored | None:
    """The checkpoint that covers every device's floor."""
    return _stored(await pg.fetchrow(POINTED % "base_checkpoint", scope))


class Pointers(NamedTuple):
    latest: int | None
    base: int | None


async def pointers(pg: Driver, scope: int) -> Pointers:
    """The ids of the latest checkpoint and of the base."""
    row = await pg.fetchrow("select latest_checkpoint, base_checkpoint from scope where id = $1", scope)
    assert row is not None
    return Pointers(*row.values())


async def latest_hash(pg: Driver, scope: int) -> str | None:
    found = await latest(pg, scope)
    return found and found.hash


async def listed(pg: Driver, scope: int, before: int, limit: int) -> list[Stored]:
    """Newest first."""
    return [Stored(*row.values()) for row in await pg.fetch(LISTED, scope, before, limit)]


def _stored(row: Row | None) -> Stored | None:
    return None if row is None else Stored(*row.values())


FRONTIER = """
select d.id as device_id, f.seq, f.op_id, f.wall_ms, f.counter
from checkpoint_frontier f join device d on d.scope = $1 and d.no = f.device
where f.scope = $1 and f.checkpoint = $2
"""


async def frontier(pg: Driver, scope: int, checkpoint: int) -> dict[str, Covered]:
    """What a checkpoint covers, by device id."""
    return dict(_covered(row) for row in await pg.fetch(FRONTIER, scope, checkpoint))


def _covered(row: Row) -> tuple[str, Covered]:
    device = row["device_id"].decode()
    hlc = Hlc(row["wall_ms"], row["counter"], device)
    return device, Covered(row["seq"], hlc, op_id_text(row["op_id"]))


#: With the state as retention left it last, or before retention ever trimmed it.
ANSWERING = """
select c.id, f.device, f.seq
from checkpoint c left join checkpoint_frontier f on f.scope = c.scope and f.checkpoint = c.id
where c.scope = $1 and c.kept
  and c.trims in (0, (select max(no) from trim where scope = $1 and done_at is not null))
"""
SEQS = "select device, seq from checkpoint_frontier where scope = $1 and checkpoint = $2"
COVERAGE = "select device, max(seq) as seq from checkpoint_frontier where scope = $1 group by device"


FRONTIERS_OF = """
select f.checkpoint, f.device, d.id as device_id, f.seq
from checkpoint_frontier f join device d on d.scope = $1 and d.no = f.device
where f.scope = $1 and f.checkpoint = any($2::bigint[]) order by d.id
"""


async def frontiers_of(pg: Driver, scope: int, ids: Sequence[int]) -> dict[int, dict[int, tuple[str, int]]]:
    """What these checkpoints cover: by device number, the device's id and the seq."""
    found: dict[int, dict[int, tuple[str, int]]] = {checkpoint: {} for checkpoint in ids}
    for row in await pg.fetch(FRONTIERS_OF, scope, ids):
        found[row["checkpoint"]][row["device"]] = row["device_id"].decode(), row["seq"]
    return found


async def seqs(pg: Driver, scope: int, checkpoint: int) -> dict[int, int]:
    """What a checkpoint covers, as device number to seq."""
    return {row["device"]: row["seq"] for row in await pg.fetch(SEQS, scope, checkpoint)}


async def answering(pg: Driver, scope: int) -> dict[int, dict[int, int]]:
    """The frontier of every checkpoint that a past state may be computed from, as device number to seq."""
    found: dict[int, dict[int, int]] = {}
    for row in await pg.fetch(ANSWERING, scope):
        covered = found.setdefault(row["id"], {})
        if row["device"] is not None:
            covered[row["device"]] = row["seq"]
    return found


async def coverage(pg: Driver, scope: int) -> dict[int, int]:
    """The highest seq of each device that some stored checkpoint covers (car-sync.md §11.8)."""
    return {row["device"]: row["seq"] for row in await pg.fetch(COVERAGE, scope)}


ADD = """
insert into checkpoint (scope, hash, state_hash, origin, size, trims) values ($1, $2, $3, 'device', $4, $5)
on conflict (scope, hash) do nothing returning id
"""
ADD_FRONTIER = """
insert into checkpoint_frontier (scope, checkpoint, device, seq, op_id, wall_ms, counter)
select $1, $2, * from unnest($3::int[], $4::bigint[], $5::bytea[], $6::bigint[], $7::bigint[])
"""


async def add(pg: Driver, scope: int, hash_: str, state_hash: str, size: int, trims: int) -> int | None:
    """A device's checkpoint, still without text and frontier; None if it is stored already."""
    found = await pg.fetchval(ADD, scope, hash_, state_hash, size, trims)
    return None if found is None else int(found)


async def add_frontier(pg: Driver, scope: int, checkpoint: int, covered: Mapping[int, Covered]) -> None:
    """Write what a checkpoint covers, by device number."""
    rows = [(no, c.seq, raw_op_id(c.head), *c.hlc[:2]) for no, c in covered.items()]
    if rows:
        await pg.execute(ADD_FRONTIER, scope, checkpoint, *zip(*rows, strict=True))


POINT = """
update scope set latest_checkpoint = coalesce($2, latest_checkpoint),
    base_checkpoint = coalesce($3, base_checkpoint)
where id = $1
"""


async def point(pg: Driver, scope: int, *, latest: int | None = None, base: int | None = None) -> None:
    """Move the latest or the base pointer, under the scope's lock."""
    await pg.execute(POINT, scope, latest, base)


PRUNE = """
update checkpoint c set kept = false from scope s
where s.id = $1 and c.scope = $1 and c.kept
  and c.id is distinct from s.latest_checkpoint and c.id is distinct from s.base_checkpoint
  and c.id not in (select id from checkpoint where scope = $1 and kept order by id desc limit $2)
"""
SWEEP = """
delete from checkpoint_chunk k where scope = $1
  and not exists (select from checkpoint c where c.scope = $1 and c.id = k.checkpoint and c.kept)
"""

#: Each of the server's own was at the head, so every later one covers all that it did.
SWEEP_FRONTIERS = """
delete from checkpoint_frontier f using checkpoint c
where f.scope = $1 and c.scope = $1 and c.id = f.checkpoint and not c.kept and c.origin = 'server'
"""


async def prune(pg: Driver, scope: int) -> None:
    """Keep the newest, the latest and the base, under the scope's lock; the texts of others are left to `sweep`."""
    await pg.execute(PRUNE, scope, KEPT)


async def keep_only(pg: Driver, scope: int, checkpoint: int) -> None:
    """Keep no other than this, under the scope's lock: they hold what retention took away."""
    await pg.execute("update checkpoint set kept = false where scope = $1 and kept and id <> $2", scope, checkpoint)


async def sweep(pg: Driver, scope: int) -> None:
    """Delete the texts of checkpoints that are no longer kept, and what the latest covers as well as they did."""
    await pg.execute(SWEEP, scope)
    await pg.execute(SWEEP_FRONTIERS, scope)
