"""The question before a side effect (car-sync.md §13.3)."""

from foldpoint.canonical import Json
from foldpoint.lease import Lease
from foldpoint.state import Record


def check_dispatch(committed: Record | None, lease: Lease | None, device_id: str, epoch: int) -> dict[str, Json]:
    """The decision in its JSON form; only `proceed` permits the side effect.

    `committed` is the oracle's record of the run; an expired lease that nobody stole still proceeds.
    """
    if committed is not None:
        return {"decision": "already_committed", "committed_op_id": committed.op_id}
    if lease is None:
        return {"decision": "not_held", "claimed_epoch": epoch}
    if lease.holder == device_id and lease.epoch == epoch:
        return {"decision": "proceed"}
    return {
        "decision": "stale_epoch",
        "claimed_epoch": epoch,
        "current_epoch": lease.epoch,
        "current_holder": lease.holder,
    }


def may_dispatch(decision: dict[str, Json]) -> bool:
    return decision["decision"] == "proceed"
