"""What `GET /v1/scopes/{scope}/` says."""

from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from app.sql import checkpoints, counts, devices, scopes
from app.sql.transactions import driver
from foldpoint.relay import stable_frontier


async def overview(connection: AsyncConnection, scope: int) -> dict[str, Any]:
    pg = await driver(connection)
    row = await scopes.row(connection, scope)
    chains = (await devices.chains(pg, scope)).values()
    roster = await devices.roster(connection, scope)
    stable = stable_frontier(roster.values())
    return {
        "scope": row.slug if row.name is None else row.name.decode(),
        "slug": row.slug,
        "mode": row.mode,
        "keys": row.key_state,
        "frontier": {chain.device_id: chain.head.seq for chain in chains if chain.head},
        "stable_frontier": stable and stable.to_json(),
        "ops": row.ops,
        "sealed_ops": row.sealed_ops,
        "records": await counts.records(pg, scope),
        "latest_checkpoint": await checkpoints.latest_hash(pg, scope),
        "devices": [entry.to_json() for entry in roster.values()],
    }
