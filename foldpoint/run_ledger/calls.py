"""What a hosted writer sends: records to append, a seal (server.md §11)."""

from collections.abc import Callable
from typing import Any, NamedTuple

from foldpoint.admission import MAX_PAYLOAD_DEPTH
from foldpoint.canonical import Json, canonical, is_deeper
from foldpoint.hosted import read_writer
from foldpoint.run_ledger.reading import Undecodable, identifier, list_of, object_of, read_text, string, u64
from foldpoint.run_ledger.wire import RecordedEvent, read_record

#: Nested containers of a record that a payload can carry.
MAX_RECORD_DEPTH = MAX_PAYLOAD_DEPTH - 1


class Append(NamedTuple):
    """With `seal` the prefix that ends with these records is sealed in the same transaction."""

    writer: str
    run_id: str
    records: list[RecordedEvent]
    epoch: int | None
    seal: bool


class SealCall(NamedTuple):
    """`winners` are what the executor acts on, as far as it says: the ids of the records that end at `through_seq`."""

    writer: str
    run_id: str
    through_seq: int
    winners: list[str]
    epoch: int


def of_run(record: RecordedEvent, run_id: str) -> RecordedEvent:
    """The record, which an op of this run can carry. Raises Undecodable."""
    if record.run_id != run_id:
        raise Undecodable("foreign_run", f"of run {record.run_id}", "event.run_id")
    if is_deeper(canonical(record.to_json()), MAX_RECORD_DEPTH):
        raise Undecodable("too_deep", f"more than {MAX_RECORD_DEPTH} nested containers")
    return record


def read_append(body: bytes) -> Append:
    """Raises Unreadable with the path of what is wrong, Undecodable with its class too."""
    call: Append = read_text(_append, body)
    return call


def _append(value: Any) -> Append:
    fields = _fields(value, {"run_id": identifier, "records": _some})
    run_id = fields["run_id"]
    records = _at("records", list_of(lambda item: of_run(read_record(item), run_id)), fields["records"])
    epoch = _at("epoch", _epoch, value["epoch"]) if value.get("epoch") is not None else None
    seal = value.get("seal", False)
    if not isinstance(seal, bool):
        raise Undecodable("invalid_type", "expected true or false", "seal")
    if seal and epoch is None:
        raise Undecodable("missing_field", "a seal is of an epoch", "epoch")
    return Append(read_writer(value.get("writer")), run_id, records, epoch, seal)


def read_seal(body: bytes) -> SealCall:
    """Raises as `read_append`."""
    call: SealCall = read_text(_seal, body)
    return call


def _seal(value: Any) -> SealCall:
    fields = _fields(value, {"run_id": identifier, "through_seq": u64, "epoch": _epoch})
    winners = _at("winners", list_of(string), value.get("winners") or [])
    if len(winners) > fields["through_seq"] + 1:
        raise Undecodable("invalid_value", "more winners than seqs", "winners")
    return SealCall(read_writer(value.get("writer")), winners=winners, **fields)


def _fields(value: Any, readers: dict[str, Callable[[Json], Any]]) -> dict[str, Any]:
    """The fields that a body must have."""
    if not isinstance(value, dict):
        raise Undecodable("invalid_type", "expected an object")
    found: dict[str, Any] = object_of(readers)({name: value[name] for name in readers if name in value})
    return found


def _at(name: str, reader: Callable[[Json], Any], value: Json) -> Any:
    try:
        return reader(value)
    except Undecodable as error:
        raise error.within(name) from None


def _some(value: Json) -> Json:
    if not isinstance(value, list) or not value:
        raise Undecodable("invalid_type", "expected a list of records")
    return value


def _epoch(value: Json) -> int:
    epoch: int = u64(value)
    if epoch < 1:
        raise Undecodable("invalid_value", "an epoch is at least 1")
    return epoch
