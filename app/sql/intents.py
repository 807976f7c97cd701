"""The leased tier: agents' fences, and the intents in each view."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

import orjson

from app.sql.keys import PREFIX, raw_op_id, slot_key, stream_key
from app.sql.rows import record_of
from app.sql.transactions import Driver
from app.sql.writes import Writes
from foldpoint.slug import slug
from foldpoint.state import AgentIntents, Record
from foldpoint.surfaces import intent

RUNS, COMMITTED = 0, 1

FENCES = "select key, fencing_epoch from agent where scope = $1 and key = any($2::bytea[])"
#: The lateral look-ups keep each key an index probe, whatever the statistics say.
HELD = """
select t.agent, v.view, i.*, d.id as device_id
from unnest($2::bytea[], $3::bytea[]) as t(agent, key)
cross join (values (0::smallint), (1::smallint)) as v(view)
cross join lateral (
    select key, wall_ms, counter, device, op_id, payload from intent
    where scope = $1 and agent = t.agent and view = v.view and key = t.key limit 1
) i
join device d on d.scope = $1 and d.no = i.device
"""
PENDING = """
select i.agent, i.view, i.key, i.wall_ms, i.counter, i.device, i.op_id, i.payload, d.id as device_id
from intent i join device d on d.scope = $1 and d.no = i.device
where i.scope = $1 and i.agent = any($2::bytea[]) and i.pending
"""


async def touched(
    pg: Driver, scope: int, keys: Collection[tuple[str, str]], epochs: dict[str, int]
) -> dict[str, AgentIntents]:
    """What the batch's (agent, key) pairs meet; with it the pendings of agents whose fence these epochs raise."""
    if not keys:
        return {}
    names = {stream_key(agent): agent for agent in epochs}
    rows = await pg.fetch(FENCES, scope, list(names))
    held = {names[row["key"]]: AgentIntents(int(row["fencing_epoch"])) for row in rows}
    raised = [stream_key(agent) for agent, known in held.items() if epochs[agent] > known.fencing_epoch]
    agents = [stream_key(agent) for agent, _ in keys]
    found = await pg.fetch(HELD, scope, agents, [slot_key(key) for _, key in keys])
    if raised:
        found += await pg.fetch(PENDING, scope, raised)
    for row in found:
        intents, record = held[names[row["agent"]]], record_of(row)
        view = intents.committed_runs if row["view"] == COMMITTED else intents.runs
        view[record.stable_key] = record
    return held


ONE_VIEW = """
select t.i, r.*, d.id as device_id
from unnest($2::bytea[], $3::bytea[]) with ordinality as t(agent, key, i)
cross join lateral (
    select wall_ms, counter, device, op_id, payload from intent
    where scope = $1 and agent = t.agent and view = $4 and key = t.key limit 1
) r
join device d on d.scope = $1 and d.no = r.device
"""


async def of_runs(pg: Driver, scope: int, view: int, runs: Collection[tuple[str, str]]) -> list[Record | None]:
    """The record of each (agent, run) in a view, in the order asked."""
    found: list[Record | None] = [None] * len(runs)
    keys = [stream_key(agent) for agent, _ in runs], [slot_key("id:" + run) for _, run in runs]
    for row in await pg.fetch(ONE_VIEW, scope, *keys, view):
        found[row["i"] - 1] = record_of(row)
    return found


COMMITTED_IDS = """
select key, payload from intent
where scope = $1 and agent = $2 and view = 1 and key > $3 and key >= 'id:'::bytea and key < 'id;'::bytea
order by key limit $4
"""


COMMITTED_ALIKE = """
select key, payload from intent
where scope = $1 and agent = $2 and view = 1 and key > $3 and substr(key, 1, $4) = substr($3, 1, $4)
"""


async def committed_ids(pg: Driver, scope: int, agent: str, after: bytes, limit: int) -> tuple[list[str], bytes | None]:
    """Committed run ids in byte order, those after a slot key; and the key after which there are more.

    Slot keys do not order what shares a long prefix, so a page takes in all that share its last one's.
    """
    rows = await pg.fetch(COMMITTED_IDS, scope, stream_key(agent), after, limit + 1)
    page, last = rows[:limit], None
    if len(rows) > limit:
        last = page[-1]["key"]
        if len(last) >= PREFIX:
            page += await pg.fetch(COMMITTED_ALIKE, scope, stream_key(agent), last, PREFIX)
            last = max(row["key"] for row in page)
    return sorted(orjson.loads(row["payload"])["id"] for row in page), last


async def fence(pg: Driver, scope: int, agent: str) -> int | None:
    """An agent's fencing epoch; None if no intent names it."""
    epoch = await pg.fetchval("select fencing_epoch from agent where scope = $1 and key = $2", scope, stream_key(agent))
    return None if epoch is None else int(epoch)


class IntentRow(NamedTuple):
    """A record to write, or with record None to remove, in one view of an agent."""

    agent: str
    view: int
    key: str
    record: Record | None
    device: int


RAISE = """
insert into agent as a (scope, key, name, slug_key, fencing_epoch)
select * from unnest($1::int[], $2::bytea[], $3::bytea[], $4::bytea[], $5::numeric[])
on conflict (scope, key) do update set fencing_epoch = greatest(a.fencing_epoch, excluded.fencing_epoch)
"""
PUT = """
insert into intent (scope, agent, view, key, wall_ms, counter, device, pending, op_id, payload)
select * from unnest($1::int[], $2::bytea[], $3::smallint[], $4::bytea[], $5::bigint[], $6::bigint[], $7::int[],
                     $8::boolean[], $9::bytea[], $10::bytea[])
on conflict (scope, agent, view, key) do update set
    wall_ms = excluded.wall_ms, counter = excluded.counter, device = excluded.device,
    pending = excluded.pending, op_id = excluded.op_id, payload = excluded.payload
"""
REMOVE = """
delete from intent where (scope, agent, view, key) in
    (select * from unnest($1::int[], $2::bytea[], $3::smallint[], $4::bytea[]))
"""


def raise_fences(writes: Writes, scope: int, fences: dict[str, int]) -> None:
    """Write the agents of a batch with their fences, new ones too."""
    writes.add(RAISE, [(scope, stream_key(a), a.encode(), stream_key(slug(a)), epoch) for a, epoch in fences.items()])


def put(writes: Writes, scope: int, rows: Iterable[IntentRow]) -> None:
    """Write the winners, and remove the pendings that a raised fence evicted."""
    for row in rows:
        place, record = (scope, stream_key(row.agent), row.view, slot_key(row.key)), row.record
        if record is None:
            writes.add(REMOVE, [place])
        else:
            pending = not intent.is_terminal(record.value())
            won = *record.hlc[:2], row.device, pending, raw_op_id(record.op_id), record.payload
            writes.add(PUT, [(*place, *won)])
