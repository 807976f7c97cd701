"""What garbage collection asks of the op table, and does to it."""

from app.sql.ops import OP_PAYLOAD
from app.sql.transactions import Driver
from foldpoint.hlc import Hlc
from foldpoint.relay import Chain

STAMP = "select wall_ms, counter from op where scope = $1 and device = $2 and seq = $3"


async def droppable(pg: Driver, scope: int, device: int, chain: Chain, covered: int, stable: Hlc) -> int | None:
    """The highest held seq that is covered and stable; None if there is none (car-sync.md §11.8).

    A chain's stamps rise with its seqs, so the place is found by halving.
    """
    assert chain.device_id is not None
    assert chain.head is not None
    lowest, highest = chain.dropped_below, min(covered, chain.head.seq)
    probe = highest
    while lowest <= highest:
        row = await pg.fetchrow(STAMP, scope, device, probe)
        assert row is not None
        if Hlc(row["wall_ms"], row["counter"], chain.device_id) <= stable:
            lowest = probe + 1
        else:
            highest = probe - 1
        probe = (lowest + highest) // 2
    return lowest - 1 if lowest > chain.dropped_below else None


KEEP = f"""
insert into record (scope, wall_ms, counter, device, surface, kind, key, stream, op_id, payload)
select scope, wall_ms, counter, device, surface, ''::bytea, op_id, stream, op_id,
       {OP_PAYLOAD}
from op where scope = $1 and device = $2 and seq <= $3 and stream is not null
on conflict do nothing
"""
FLOOR = """
update device d set dropped_below = o.seq + 1, dropped_op_id = o.op_id,
    dropped_wall_ms = o.wall_ms, dropped_counter = o.counter
from op o
where o.scope = $1 and o.device = $2 and o.seq = $3 and d.scope = o.scope and d.no = o.device
"""
DROP = """
with gone as (delete from op where scope = $1 and device = $2 and seq <= $3 returning 1)
update scope set ops = ops - (select count(*) from gone) where id = $1
returning (select count(*) from gone)
"""


async def drop(pg: Driver, scope: int, device: int, upto: int) -> int:
    """Drop a device's ops up to a seq, under the scope's lock; records of event streams stay as base rows."""
    await pg.execute(KEEP, scope, device, upto)
    await pg.execute(FLOOR, scope, device, upto)
    return int(await pg.fetchval(DROP, scope, device, upto))
