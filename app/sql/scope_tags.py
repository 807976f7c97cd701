"""The scope tags that devices ever used, for the `scopes` of a checkpoint."""

from collections.abc import Mapping

from app.sql.transactions import Driver

COVERED = """
select distinct s.tag from unnest($2::int[], $3::bigint[]) as f(device, seq)
join op_scope s on s.scope = $1 and s.device = f.device and s.first_seq <= f.seq
"""


async def covered(pg: Driver, scope: int, frontier: Mapping[int, int]) -> list[str]:
    """The tags of the ops that a frontier of device numbers covers, sorted by bytes."""
    rows = await pg.fetch(COVERED, scope, list(frontier), list(frontier.values()))
    return sorted(row["tag"].decode() for row in rows)
