"""What an executor may do to a run, and what it does when it takes over (run-ledger.md §12)."""

from collections.abc import Iterable, Mapping, Sequence

from foldpoint.canonical import U64_MAX, Json, canonical
from foldpoint.hlc import Hlc
from foldpoint.hosted import EPOCH_CHARS, hosted_device
from foldpoint.lease import Lease
from foldpoint.projection import BelowSnapshot
from foldpoint.run_ledger.entry import seal_payload
from foldpoint.run_ledger.errors import SealMismatch
from foldpoint.run_ledger.merge import Merged
from foldpoint.run_ledger.state import RunState
from foldpoint.run_ledger.wire import Event, RecordedEvent
from foldpoint.state import Record

#: The most winners of one seal.
SEALED_TOGETHER = 256
#: Stands for a server epoch: who speaks for a hosted chain does not depend on it.
NO_EPOCH = "0" * EPOCH_CHARS


class NotFolded(Exception):
    """Only what is folded can be sealed: `seq` is not."""

    def __init__(self, seq: int) -> None:
        super().__init__(f"seq {seq} is not folded")
        self.seq = seq


def check_append(lease: Lease | None, floor: int, writer: str, claimed: int) -> dict[str, Json]:
    """The decision on an append at a claimed epoch, in the JSON form of `fence.check_dispatch`.

    `floor` is the highest epoch known for the run without the lease: of its seals (`Merged.epoch`), the agent's fence
    and its lease register. A lower claim is stale, and so is any but the holder's own while somebody holds the lease.
    """
    held = lease if lease is not None and lease.epoch >= floor else None
    if claimed >= floor and (lease is None or (lease.holder, lease.epoch) == (writer, claimed)):
        return {"decision": "proceed"}
    return {
        "decision": "stale_epoch",
        "claimed_epoch": claimed,
        "current_epoch": held.epoch if held else floor,
        "current_holder": held.holder if held else None,
    }


def check_seal(lease: Lease | None, floor: int, writer: str, claimed: int) -> dict[str, Json]:
    """As `check_append`, but only the lease's holder seals."""
    decision = check_append(lease, floor, writer, claimed)
    if lease is None and decision["decision"] == "proceed":
        return {"decision": "not_held", "claimed_epoch": claimed}
    return decision


def seen_at(through_seq: int, winners: Sequence[str]) -> dict[int, str]:
    """Winners that end at a seq, by seq."""
    return dict(enumerate(winners, through_seq + 1 - len(winners)))


def lowest_needed(merged: Merged, seen: Mapping[int, str]) -> int:
    """The lowest seq whose winner `plan_seal` must know."""
    return min([merged.sealed, *seen])


def plan_seal(merged: Merged, through_seq: int, seen: Mapping[int, str], before: Sequence[str] = ()) -> tuple[str, ...]:
    """The winners for a seal through `through_seq`: those that no seal has fixed yet; none if all are.

    `seen` are winners that the executor acted on, by seq; `before` those of the seqs that end where the merge began.
    Raises NotFolded, SealMismatch if another entry has won since, and BelowSnapshot.
    """
    if through_seq >= merged.state.next_seq:
        raise NotFolded(through_seq)
    start = merged.onto.base.next_seq - len(before)
    if lowest_needed(merged, seen) < start:
        raise BelowSnapshot("winners before the snapshot's entries")
    winners = [*before, *(entry.place.id for entry in merged.folded)]
    for seq, name in seen.items():
        if winners[seq - start] != name:
            raise SealMismatch(seq=seq, expected=winners[seq - start], actual=name)
    return tuple(winners[merged.sealed - start : through_seq + 1 - start])


def seal_payloads(
    writer: str, run_id: str, through_seq: int, winners: Sequence[str], epoch: int
) -> list[dict[str, Json]]:
    """The seals of these winners, so many together that a snapshot need not reach far back for one of them."""
    first = through_seq + 1 - len(winners)
    parts = (winners[at : at + SEALED_TOGETHER] for at in range(0, len(winners), SEALED_TOGETHER))
    payloads: list[dict[str, Json]] = []
    for part in parts:
        first += len(part)
        payloads.append(seal_payload(writer, run_id, first - 1, tuple(part), epoch))
    return payloads


def foreseen(merged: Merged, run_id: str, writer: str, payloads: Sequence[Mapping[str, Json]]) -> Merged:
    """The run once a hosted writer has written these payloads: their stamps will be above all others."""
    device_id = hosted_device(writer, NO_EPOCH)
    return merged.with_records(
        run_id,
        [
            Record(Hlc(U64_MAX, number, device_id), f"op-{number}", canonical({**payload}))
            for number, payload in enumerate(payloads)
        ],
    )


def starting_agent(records: Iterable[RecordedEvent]) -> str | None:
    """The agent of the first of these records that can start a run."""
    return next(
        (record.event["agent_id"] for record in records if record.seq == 0 and record.name == "run_started"), None
    )


def recovery(state: RunState, reason: str) -> Event | None:
    """The event by which a new executor closes what the last one left running; None if nothing was.

    Whether the effect happened is unknown. A model may be asked again; a tool ran perhaps, so unless it is idempotent
    this event is for a person to decide.
    """
    phase = state.phase
    if phase["phase"] == "awaiting_model_response":
        place = {"turn_id": phase["turn_id"], "step": phase["step"]}
        return {"event": "model_failed", "run_id": state.run_id, **place, "reason": reason}
    if phase["phase"] == "tool_running":
        return {"event": "tool_failed", "run_id": state.run_id, "call_id": phase["call_id"], "reason": reason}
    return None
