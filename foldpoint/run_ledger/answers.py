"""What a reader gets of a run (server.md §11)."""

from collections.abc import Iterable, Sequence

from foldpoint.canonical import Json
from foldpoint.projection import BelowSnapshot
from foldpoint.run_ledger.merge import Merged
from foldpoint.run_ledger.walk import Standing

#: What its host, or a person, has to know of: the entry is not part of the ledger.
_LOST = frozenset(("superseded", "illegal", "after_terminal"))


def run_answer(merged: Merged, start: int = 0) -> dict[str, Json]:
    """`{"state", "command", "statuses": {id: status}, "blocked_at"}` in the shapes of the vectors.

    The statuses are those of the seqs from `start` on.
    """
    return {
        "state": merged.state.to_json(),
        "command": merged.state.command,
        "statuses": {item.place.id: status.to_json() for item, status in merged.standings if item.seq >= start},
        "blocked_at": merged.blocked_at,
    }


def append_answer(merged: Merged, ids: Sequence[str], settled: Iterable[Standing] = ()) -> dict[str, Json]:
    """`{"statuses": [{"id", "seq", "status", …}], "next_seq", "command"}` for the ids given, in their order.

    `settled` are standings below those of the merge. Raises BelowSnapshot for an id that is in neither.
    """
    standings = {standing.item.place.id: standing for standing in (*settled, *merged.standings)}
    if missing := [name for name in ids if name not in standings]:
        raise BelowSnapshot(f"entry {missing[0]}")
    return {
        "statuses": [told(standings[name]) for name in ids],
        "next_seq": merged.state.next_seq,
        "command": merged.state.command,
    }


def conflicts(standings: Iterable[Standing]) -> list[dict[str, Json]]:
    """The entries and seals that lost: id, op, device, seq, status with winner or error, and what they say."""
    return [
        {**told(standing), "op_id": place.op_id, "device_id": place.hlc.device_id, **standing.item.body()}
        for standing in standings
        if standing.status.status in _LOST
        for place in [standing.item.place]
    ]


def told(standing: Standing) -> dict[str, Json]:
    """What became of one item."""
    return {"id": standing.item.place.id, "seq": standing.item.seq, **standing.status.to_json()}
