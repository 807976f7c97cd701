"""Contacts and acks: who is on the roster, and what lets GC go on (car-sync.md §11.1, §11.4)."""

from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from app.problems import Problem
from app.settings import Settings
from app.sql import devices, scopes
from app.sql.transactions import driver
from foldpoint import relay
from foldpoint.admission import MAX_DEVICE_ID_BYTES
from foldpoint.hlc import Hlc
from foldpoint.hosted import is_hosted
from foldpoint.relay import Acknowledged, RosterEntry


def refuse_hosted(device: str) -> None:
    """Raises reserved_device: a real device can never be locked out by a hosted one."""
    if is_hosted(device):
        raise Problem("reserved_device", "device ids of hosted chains are written by the server alone")


async def contact(connection: AsyncConnection, scope: int, device: str, settings: Settings) -> int:
    """Note that a device called, enrolling it if it is new; its number. Raises reserved_device."""
    refuse_hosted(device)
    return await devices.touch(await driver(connection), scope, device, settings.eviction_horizon_ms)


async def entry(connection: AsyncConnection, scope: int, no: int) -> RosterEntry:
    return (await devices.roster(connection, scope))[no]


async def acknowledge(connection: AsyncConnection, scope: int, no: int, hlc: Hlc) -> Acknowledged:
    """Take the ack of a device that has just made contact. Raises invalid_request for an id no device can have."""
    if len(hlc.device_id.encode()) > MAX_DEVICE_ID_BYTES:
        raise Problem("invalid_request", f"a device id may have {MAX_DEVICE_ID_BYTES} bytes", {"path": "device_id"})
    entries = await devices.roster(connection, scope)
    own = entries.pop(no)
    outcome = relay.acknowledge(own, entries.values(), hlc)
    await devices.put_ack(connection, scope, no, outcome)
    return outcome


async def report(connection: AsyncConnection, scope: int) -> dict[str, Any]:
    """The roster as an admin needs it: devices with their last problem, and who holds GC back since when."""
    entries = (await devices.roster(connection, scope)).values()
    reports = await devices.reports(connection, scope)
    since = {one["device_id"]: one["acked_at_ms"] for one in reports}
    stable = relay.stable_frontier(entries)
    return {
        "devices": reports,
        "stable_frontier": stable and stable.to_json(),
        "gc_held_by": [
            {
                "device_id": entry.device_id,
                "acked": entry.acked and entry.acked.to_json(),
                "since_ms": entry.added_at_ms if entry.acked is None else since[entry.device_id],
                "last_seen_ms": entry.last_seen_ms,
            }
            for entry in relay.holders(entries)
        ],
        "checkpoint_problem": devices.problem_of(await scopes.row(connection, scope)),
    }
