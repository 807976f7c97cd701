"""How many records a scope's surfaces have, and how many ops it took in."""

from app.sql.transactions import Driver
from foldpoint.surfaces import BY_NUMBER, intent

RECORDS = """
select surface, count(*) as records from record where scope = $1 group by surface
union all
select surface, count(*) from op where scope = $1 and stream is not null group by surface
union all
select $2, count(*) from intent where scope = $1 and view = 0
"""


async def records(pg: Driver, scope: int) -> dict[str, int]:
    """Records by surface name; of intents, the runs."""
    counted = {surface.name: 0 for surface in BY_NUMBER.values()}
    for row in await pg.fetch(RECORDS, scope, intent.SURFACE.number):
        counted[BY_NUMBER[row["surface"]].name] += row["records"]
    return counted


async def accepted_and_records(pg: Driver, scope: int) -> tuple[int, int]:
    """How many ops were ever taken in, and how many records there are."""
    accepted = await pg.fetchval("select accepted from scope where id = $1", scope)
    return int(accepted), sum((await records(pg, scope)).values())
