"""run_seen: primary data, kept for ever, whatever GC and retention do."""

from collections.abc import Collection, Mapping
from typing import Any

from app.sql.intents import COMMITTED
from app.sql.keys import raw_op_id, slot_key, stream_key
from app.sql.rows import record_of
from app.sql.transactions import Driver
from app.sql.writes import Writes
from foldpoint.run_seen import Seen, Sighting
from foldpoint.state import Record

#: The writers' ids are given: a new device's row does not have its own yet.
PUT = """
insert into run_seen as s (scope, agent, key, epoch, failed, wall_ms, counter, device, op_id, payload)
select * from unnest($1::int[], $2::bytea[], $3::bytea[], $4::numeric[], $5::boolean[], $6::bigint[], $7::bigint[],
                     $8::int[], $9::bytea[], $10::bytea[])
on conflict (scope, agent, key, epoch, failed) do update set
    wall_ms = excluded.wall_ms, counter = excluded.counter, device = excluded.device,
    op_id = excluded.op_id, payload = excluded.payload
where (s.wall_ms, s.counter, (select id from device d where d.scope = s.scope and d.no = s.device), s.op_id)
    < (excluded.wall_ms, excluded.counter,
       (select w.id from unnest($1::int[], $8::int[], $11::bytea[]) as w(scope, device, id)
        where w.scope = s.scope and w.device = excluded.device limit 1), excluded.op_id)
"""


def put(writes: Writes, scope: int, seen: Seen, numbers: Mapping[str, int]) -> None:
    """Let sightings compete with those held; `numbers` are those of their devices."""
    writes.add(PUT, [_row(scope, *sighted, numbers) for sighted in seen.items()])


def _row(scope: int, slot: Sighting, record: Record, numbers: Mapping[str, int]) -> tuple[Any, ...]:
    wall_ms, counter, device_id = record.hlc
    place = scope, stream_key(slot.agent_id), slot_key(slot.key), slot.epoch, slot.failed
    won = wall_ms, counter, numbers[device_id], raw_op_id(record.op_id), record.payload
    return *place, *won, device_id.encode()


OF_RUNS = """
select t.i, s.*, d.id as device_id
from unnest($2::bytea[], $3::bytea[]) with ordinality as t(agent, key, i)
cross join lateral (
    select epoch, failed, wall_ms, counter, device, op_id, payload from run_seen
    where scope = $1 and agent = t.agent and key = t.key offset 0
) s
join device d on d.scope = $1 and d.no = s.device
"""


async def of_runs(pg: Driver, scope: int, runs: Collection[tuple[str, str]]) -> list[Seen]:
    """The sightings of each (agent, run), in the order asked."""
    asked = [(agent, "id:" + run) for agent, run in runs]
    found: list[Seen] = [{} for _ in asked]
    keys = [stream_key(a) for a, _ in asked], [slot_key(k) for _, k in asked]
    for row in await pg.fetch(OF_RUNS, scope, *keys):
        agent, key = asked[row["i"] - 1]
        found[row["i"] - 1][Sighting(agent, key, int(row["epoch"]), row["failed"])] = record_of(row)
    return found


#: What the oracle holds of each run, without an epoch, and its sightings: one round trip, the same two index probes.
OUTCOMES = """
select t.i, r.*, d.id as device_id
from unnest($2::bytea[], $3::bytea[]) with ordinality as t(agent, key, i)
cross join lateral (
    (select epoch, failed, wall_ms, counter, device, op_id, payload from run_seen
     where scope = $1 and agent = t.agent and key = t.key offset 0)
    union all
    (select null, null, wall_ms, counter, device, op_id, payload from intent
     where scope = $1 and agent = t.agent and view = $4 and key = t.key limit 1)
) r
join device d on d.scope = $1 and d.no = r.device
"""


async def outcomes(pg: Driver, scope: int, runs: Collection[tuple[str, str]]) -> list[tuple[Record | None, Seen]]:
    """Each (agent, run)'s committed record and its sightings, in the order asked."""
    asked = [(agent, "id:" + run) for agent, run in runs]
    committed: list[Record | None] = [None] * len(asked)
    found: list[Seen] = [{} for _ in asked]
    keys = [stream_key(a) for a, _ in asked], [slot_key(k) for _, k in asked]
    for row in await pg.fetch(OUTCOMES, scope, *keys, COMMITTED):
        place, record = row["i"] - 1, record_of(row)
        if row["epoch"] is None:
            committed[place] = record
        else:
            agent, key = asked[place]
            found[place][Sighting(agent, key, int(row["epoch"]), row["failed"])] = record
    return list(zip(committed, found, strict=True))
