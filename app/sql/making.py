"""The server's own checkpoints: begun, named once their text is written, and when the next one is due."""

from typing import NamedTuple

from app.sql import checkpoints
from app.sql.transactions import Driver

BEGIN = """
insert into checkpoint (scope, hash, state_hash, origin, size, trims)
values ($1, $2, '', 'server', 0, (select count(*) from trim where scope = $1)) returning id
"""
FINISH = """
update checkpoint set hash = $3, state_hash = $4, size = $5, accepted = $6, records = $7 where scope = $1 and id = $2
"""
EQUAL = "update checkpoint set accepted = $3, records = $4 where scope = $1 and id = $2"
REMOVE = "delete from checkpoint where scope = $1 and id = $2"


class Made(NamedTuple):
    """What a checkpoint's text turned out to be. `accepted` is how many ops the scope had ever taken in."""

    hash: str
    state_hash: str
    size: int
    accepted: int
    records: int


async def begin(pg: Driver, scope: int, hash_: str) -> int:
    """A checkpoint whose hashes and size `finish` will write."""
    return int(await pg.fetchval(BEGIN, scope, hash_))


async def finish(pg: Driver, scope: int, checkpoint: int, made: Made) -> int:
    """Give a checkpoint its name; if an equal one is kept, that one stays and is returned."""
    equal = await checkpoints.by_hash(pg, scope, made.hash)
    if equal is not None and equal.kept:
        await pg.execute(REMOVE, scope, checkpoint)
        await pg.execute(EQUAL, scope, equal.id, made.accepted, made.records)
        return equal.id
    if equal is not None:
        await pg.execute(REMOVE, scope, equal.id)
    await pg.execute(FINISH, scope, checkpoint, *made)
    return checkpoint


#: A state as large as the ops since is written at most every time it has doubled: the cost of all stays linear.
DUE = """
select s.id from scope s left join lateral (
    select accepted, records from checkpoint c
    where c.scope = s.id and accepted is not null order by accepted desc limit 1
) last on true
where s.mode = 'plain' and ($2::int is null or s.id = $2)
  and s.accepted - coalesce(last.accepted, 0) >= greatest($1::bigint, coalesce(last.records, 0))
order by s.id
"""


async def due(pg: Driver, every: int, scope: int | None = None) -> list[int]:
    """The scopes, or this one, that took in max(every, records of the last) ops since the server's last checkpoint."""
    return [row["id"] for row in await pg.fetch(DUE, every, scope)]
