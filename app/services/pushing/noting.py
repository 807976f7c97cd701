"""What a batch of admitted ops adds to the streams of the three projections, under the scope's lock (server.md §8)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from app.services.pushing.arrivals import off_loop
from app.sql import claims, entries
from app.sql.claims import Claimed
from app.sql.entries import Changed, Held, Place, StreamKey
from app.sql.transactions import Driver
from app.sql.writes import Writes
from foldpoint.journal.claims import claimed_by
from foldpoint.op import Op
from foldpoint.projections import BY_TAG, JOURNAL, Entry, entries_of


async def note_entries(pg: Driver, writes: Writes, scope: int, ops: Iterable[Op], numbers: Mapping[str, int]) -> None:
    """Bring entries and their streams up to date. An entry that its author wrote again moves to the later place."""
    ours = [op for op in ops if op.surface in BY_TAG]
    size = sum(len(op.payload_text) for op in ours)
    found = await off_loop(size, entries_of, ours)
    if not found:
        return
    held = await entries.held(pg, scope, found)
    winners = _winners(found, held)
    entries.put(writes, scope, [(entry, numbers[entry.record.hlc.device_id]) for entry in winners])
    entries.change(writes, scope, held, await off_loop(size, _changes, winners, held))
    claims.put(writes, scope, await off_loop(size, claimed_in, winners))


def _changes(winners: Iterable[Entry], held: Held) -> list[Changed]:
    streams: dict[StreamKey, list[Entry]] = defaultdict(list)
    for entry in winners:
        streams[StreamKey.of(entry)].append(entry)
    return [_changed(stream, new, held) for stream, new in streams.items()]


def claimed_in(found: Iterable[Entry]) -> list[Claimed]:
    """The queue entries that these say they handed out."""
    return [
        Claimed(StreamKey.of(entry).key, claimed, entry.record.op_id)
        for entry in found
        if entry.projection is JOURNAL
        for claimed in claimed_by(entry.record)
    ]


def _winners(found: Iterable[Entry], held: Held) -> list[Entry]:
    """The last of each id, unless a later one is held."""
    last: dict[tuple[StreamKey, bytes], Entry] = {}
    for entry in sorted(found, key=lambda entry: entry.record):
        last[StreamKey.of(entry), entry.id] = entry
    return [entry for slot, entry in last.items() if slot not in held.places or held.places[slot] < _place(entry)]


def _changed(stream: StreamKey, new: Sequence[Entry], held: Held) -> Changed:
    """What these entries do to their stream."""
    before = held.streams.get(stream)
    places = [_place(entry) for entry in new]
    gone = [held.places[stream, entry.id] for entry in new if (stream, entry.id) in held.places]
    last = max(places if before is None else [*places, before.last])
    lowest = min([*places, *gone])
    late = before is not None and lowest <= before.last
    labels = [(_place(entry), label) for entry in new if (label := entry.label) is not None]
    given = max(labels, default=None)
    if given is not None and before is not None and before.labelled is not None and before.labelled > given[0]:
        given = None
    return Changed(stream, new[0].stream, len(new) - len(gone), last, lowest if late else None, given)


def _place(entry: Entry) -> Place:
    return entry.record[:2]
