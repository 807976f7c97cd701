"""What a hosted write asks of the database, and remembers, under the scope's lock (server.md §7)."""

from typing import NamedTuple

from app.sql.transactions import Driver
from foldpoint.hlc import Hlc

#: Answers are kept for a day.
KEPT_MS = 24 * 3_600_000

#: A chain's head has its highest stamp, also after its ops were dropped.
WITNESSED = """
select head_wall_ms, head_counter from device
where scope = $1 and head_wall_ms is not null order by head_wall_ms desc, head_counter desc limit 1
"""


async def witnessed(pg: Driver, scope: int) -> list[Hlc]:
    """The highest stamp that any chain of the scope has, if there is one."""
    row = await pg.fetchrow(WITNESSED, scope)
    return [] if row is None else [Hlc(row["head_wall_ms"], row["head_counter"], "")]


class Answered(NamedTuple):
    """An earlier request with the same idempotency key, as its hash, and what it was answered."""

    request: bytes
    answer: bytes


FIND = "select request, answer from idempotency where scope = $1 and key = $2 and until_ms > $3"
KEEP = """
insert into idempotency (scope, key, request, answer, until_ms) values ($1, $2, $3, $4, $5)
on conflict (scope, key) do update set
    request = excluded.request, answer = excluded.answer, until_ms = excluded.until_ms
"""
FORGET = "delete from idempotency where scope = $1 and until_ms <= $2"


async def answered(pg: Driver, scope: int, key: bytes, now_ms: int) -> Answered | None:
    row = await pg.fetchrow(FIND, scope, key, now_ms)
    return None if row is None else Answered(row["request"], row["answer"])


async def keep(pg: Driver, scope: int, key: bytes, answered: Answered, now_ms: int) -> None:
    """Remember an answer for a day, and forget those that are older."""
    await pg.execute(FORGET, scope, now_ms)
    await pg.execute(KEEP, scope, key, *answered, now_ms + KEPT_MS)


#: Of a sealed scope the ops in an answer are sealed; any other answer was made of what is opened.
FORGET_OPENED = """
delete from idempotency where scope = $1
  and answer not like '{"ops":[{"op_id":%' and answer not like '{"op":{"op_id":%'
  and answer not like '{"recorded":true,"op":{"op_id":%'
"""


async def forget_opened(pg: Driver, scope: int) -> None:
    """Forget the answers that were made of opened payloads."""
    await pg.execute(FORGET_OPENED, scope)


HOLDER = """
select epoch, holder from lease where scope = $1 and agent = $2 and holder is not null for update
"""


class Holder(NamedTuple):
    epoch: int
    holder: str


async def lease_holder(pg: Driver, scope: int, agent_key: bytes) -> Holder | None:
    """Who holds an agent's lease, an expired one too; it stays so until the transaction ends."""
    row = await pg.fetchrow(HOLDER, scope, agent_key)
    return None if row is None else Holder(row["epoch"], row["holder"].decode())


async def closed_intents(pg: Driver, scope: int) -> int:
    """How many intents of the scope are closed for want of a key."""
    return int(await pg.fetchval("select closed_intents from scope where id = $1", scope))
