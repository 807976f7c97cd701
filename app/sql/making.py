"""The server's own checkpoints: begun, named once their text is written, and when the next one is due."""

from typing import NamedTuple

from app.sql import checkpoints
from app.sql.transactions import Driver

BEGIN = f"""
insert into checkpoint (scope, hash, state_hash, origin, size, trims)
values ($1, $2, '', 'server', 0, {checkpoints.TRIMS}) returning id
"""
FINISH = "update checkpoint set hash = $3, state_hash = $4, size = $5 where scope = $1 and id = $2"
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
        return equal.id
    if equal is not None:
        await pg.execute(REMOVE, scope, equal.id)
    await pg.execute(FINISH, scope, checkpoint, made.hash, made.state_hash, made.size)
    return checkpoint


NOTE = "update scope set checkpointed = $2, checkpointed_records = $3 where id = $1"
#: A state as large as the ops since is written at most every time it has doubled: the cost of all stays linear.
DUE = """
select id from scope
where mode = 'plain' and ($2::int is null or id = $2)
  and accepted - checkpointed >= greatest($1::bigint, checkpointed_records)
order by id
"""


async def note(pg: Driver, scope: int, made: Made) -> None:
    """Remember how far the scope was, under its lock."""
    await pg.execute(NOTE, scope, made.accepted, made.records)


async def due(pg: Driver, every: int, scope: int | None = None) -> list[int]:
    """The scopes, or this one, that took in max(every, records of the last) ops since the server's last checkpoint."""
    return [row["id"] for row in await pg.fetch(DUE, every, scope)]
