"""run_seen: primary data, kept for ever, whatever GC and retention do."""

from collections.abc import Collection
from typing import Any

from app.sql.keys import raw_op_id, slot_key, stream_key
from app.sql.rows import record_of
from app.sql.transactions import Driver
from foldpoint.run_seen import Seen, Sighting
from foldpoint.state import Record

PUT = """
insert into run_seen as s (scope, agent, key, epoch, failed, wall_ms, counter, device, op_id, payload)
select $1, * from unnest($2::bytea[], $3::bytea[], $4::numeric[], $5::boolean[], $6::bigint[], $7::bigint[],
                         $8::int[], $9::bytea[], $10::bytea[])
on conflict (scope, agent, key, epoch, failed) do update set
    wall_ms = excluded.wall_ms, counter = excluded.counter, device = excluded.device,
    op_id = excluded.op_id, payload = excluded.payload
where (s.wall_ms, s.counter, (select id from device d where d.scope = $1 and d.no = s.device), s.op_id)
    < (excluded.wall_ms, excluded.counter,
       (select id from device d where d.scope = $1 and d.no = excluded.device), excluded.op_id)
"""


async def put(pg: Driver, scope: int, seen: Seen, device: int) -> None:
    """Let a device's sightings compete with those held."""
    if seen:
        await pg.execute(PUT, scope, *zip(*(_row(s, r, device) for s, r in seen.items()), strict=True))


def _row(slot: Sighting, record: Record, device: int) -> tuple[Any, ...]:
    place = stream_key(slot.agent_id), slot_key(slot.key), slot.epoch, slot.failed
    return *place, *record.hlc[:2], device, raw_op_id(record.op_id), record.payload


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
