"""What a payload of the registry holds: a recorded event, or a seal (server.md §8, run-ledger.md §12)."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from foldpoint.canonical import Json, as_u64
from foldpoint.hlc import Hlc
from foldpoint.op import read_hlc
from foldpoint.projection import payload_id, recomputes
from foldpoint.run_ledger.reading import Undecodable, is_blank, list_of, object_of, string, u64
from foldpoint.run_ledger.wire import RecordedEvent, read_record
from foldpoint.state import Record

_SEAL = object_of({"through_seq": u64, "winners": list_of(string), "epoch": u64})


class Place(NamedTuple):
    """Where an entry stands among all; `id` is the payload's."""

    hlc: Hlc
    op_id: str
    id: str


class Entry(NamedTuple):
    """One device's word on what the run's record `seq` is."""

    place: Place
    record: RecordedEvent

    @property
    def seq(self) -> int:
        return self.record.seq

    @property
    def first_seq(self) -> int:
        return self.record.seq

    def body(self) -> dict[str, Json]:
        return {"record": self.record.to_json()}


class Seal(NamedTuple):
    """An executor's word that the winners up to `seq` are what it acts on.

    `winners` are the ids of the records that end at `seq`: of the whole prefix, or of its unsealed rest.
    """

    place: Place
    seq: int
    winners: tuple[str, ...]
    epoch: int

    @property
    def first_seq(self) -> int:
        return self.seq - len(self.winners) + 1

    @property
    def rank(self) -> tuple[int, Hlc, str]:
        """Of two seals that disagree, the smaller one holds (server.md §8)."""
        return self.epoch, self.place.hlc, self.place.id

    def body(self) -> dict[str, Json]:
        return {"seal": {"through_seq": self.seq, "winners": [*self.winners], "epoch": self.epoch}}


Item = Entry | Seal


def run_of(payload: Json) -> str | None:
    """The run that a payload belongs to; ids are not blank (run-ledger.md §3)."""
    run = payload.get("run_id") if isinstance(payload, dict) else None
    return run if isinstance(run, str) and not is_blank(run) else None


def entry_payload(author: str, record: RecordedEvent, source: Json = None) -> dict[str, Json]:
    """The payload by which `author`, a device or a hosted writer, records an event; `source` is where it came from."""
    content: dict[str, Json] = {"run_id": record.run_id, "record": record.to_json()}
    return _payload(author, content if source is None else {**content, "source": source})


def seal_payload(author: str, run_id: str, through_seq: int, winners: tuple[str, ...], epoch: int) -> dict[str, Json]:
    """The payload by which `author` seals the records that end at `through_seq`."""
    seal: Json = {"through_seq": through_seq, "winners": [*winners], "epoch": epoch}
    return _payload(author, {"run_id": run_id, "seal": seal})


def _payload(author: str, content: dict[str, Json]) -> dict[str, Json]:
    return {"id": payload_id(author, content), **content}


def read_item(record: Record, run_id: str) -> Item | None:
    """What a folded record says of a run.

    None for another run, for an id that does not recompute, and for what is neither a decodable event of that run
    nor a decodable seal. Keys beside `id`, `run_id` and the one of `record` and `seal` are somebody's note.
    """
    payload = record.value()
    if not isinstance(payload, dict) or payload.get("run_id") != run_id:
        return None
    if ("record" in payload) is ("seal" in payload) or not recomputes(record.hlc.device_id, payload):
        return None
    place = Place(record.hlc, record.op_id, payload["id"])
    try:
        return _read_body(place, payload, run_id)
    except Undecodable:
        return None


def _read_body(place: Place, payload: Mapping[str, Any], run_id: str) -> Item | None:
    if "record" in payload:
        entry = Entry(place, read_record(payload["record"]))
        return entry if entry.record.run_id == run_id else None
    seal = _seal_of(place, _SEAL(payload["seal"]))
    return seal if seal.winners and seal.first_seq >= 0 else None


def _seal_of(place: Place, seal: Mapping[str, Any]) -> Seal:
    return Seal(place, seal["through_seq"], tuple(seal["winners"]), seal["epoch"])


def seq_of(payload: Json) -> int | None:
    """The seq of a payload that holds a record, decodable or not; None of every other."""
    record = payload.get("record") if isinstance(payload, dict) and "seal" not in payload else None
    return as_u64(record.get("seq")) if isinstance(record, dict) else None


def item_to_json(item: Item) -> dict[str, Json]:
    """As a snapshot keeps an item."""
    hlc, op_id, name = item.place
    return {"hlc": hlc.to_json(), "op_id": op_id, "id": name, **item.body()}


def item_from_json(value: Any) -> Item:
    """The item of which a snapshot kept this."""
    place = Place(read_hlc(value["hlc"]), value["op_id"], value["id"])
    return _seal_of(place, value["seal"]) if "seal" in value else Entry(place, RecordedEvent(**value["record"]))
