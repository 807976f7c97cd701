"""What an op means: the view its author had of the entries before it (journal.md §8.3, server.md §8).

Every set of entries that can be a view holds, of each device, all up to some stamp; so a view is named by those
stamps. `seen` gives them, cut to the entries before the op and to the view that the op is itself judged in.
"""

from bisect import bisect
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from foldpoint.journal.records import Entry, Seen, Stamp
from foldpoint.journal.view import JUDGED, Queued, View
from foldpoint.projection import BelowSnapshot, author_of

_NEVER: Stamp = (-1, 0)
#: Entries between two saved views.
_STRIDE = 64
#: Steps that may be walked, in all and for each entry. Devices that have seen all that those had seen whom they have
#: seen need about ten for each entry; made-up stamps of many devices need a power of the number of entries.
_STEPS = 100_000
_STEPS_PER_ENTRY = 200

#: What entries mean in views that do not hold the whole snapshot, by the entry's id and the stamps of its view.
Judged = dict[tuple[str, frozenset[tuple[str, Stamp]]], list[str]]


class Entangled(Exception):
    """What the entries say they have seen contradicts itself so much that their views cannot be told in good time."""

    def __init__(self) -> None:
        super().__init__("what devices say they have seen of the session contradicts itself too much to be folded")


class _Saved(NamedTuple):
    """A view of entries below `end`, and the heads of all entries below it."""

    end: int
    view: View
    heads: dict[str, Stamp]


@dataclass(slots=True)
class _Walk:
    """On the way to the view in which the entry at `end` is judged."""

    end: int
    entry: Entry
    stamps: dict[str, Stamp]
    index: int
    view: View


def seen_by(entry: Entry, heads: Seen) -> Seen:
    """How far an entry's author had seen each device, among entries with these heads."""
    seen = entry.seen
    if seen is None:
        return heads
    return {
        device: head if author_of(device) == entry.author else min(head, seen.get(device, _NEVER))
        for device, head in heads.items()
    }


@dataclass(slots=True)
class Views:
    """The entries after a snapshot in order, and the view of all so far.

    An author's view mostly differs from it in the latest entries only; so views of all that came so far are kept,
    ever fewer further back, and an author's view is made from the latest of them that it holds whole, or from its
    last view. What an op means in a view is asked again in every view around it and remembered.
    """

    whole: View
    #: What was found of later entries before the entries in the snapshot were left behind.
    found: Judged = field(default_factory=dict)
    #: Whether any entry will have a view of its own.
    apart: bool = True
    #: The entries so far that had, and the stamps of those views.
    judged: list[tuple[Entry, dict[str, Stamp]]] = field(default_factory=list)
    _begun: frozenset[str] = frozenset()
    _entries: list[Entry] = field(default_factory=list)
    _stamps: dict[str, list[Stamp]] = field(default_factory=dict)
    _saved: list[_Saved] = field(default_factory=list)
    _last: dict[str, _Saved] = field(default_factory=dict)
    _steps: int = 0

    def __post_init__(self) -> None:
        self.found = dict(self.found)
        self._begun = frozenset(self.whole.heads)
        self._stamps = {device: [stamp] for device, stamp in self.whole.heads.items()}
        self._save()

    def advance(self, entry: Entry) -> tuple[list[str], list[Queued]]:
        """Apply the next entry: the ids that it means, and what of them it took from a queue.

        Raises BelowSnapshot, Entangled.
        """
        stamps = self._apart(entry, self.whole)
        if stamps is None:
            targets = self.whole.targets(entry.op)
        else:
            self.judged.append((entry, stamps))
            found = self._judge(len(self._entries), entry, stamps)
            targets = self._walk(found) if isinstance(found, _Walk) else found
        taken = self.whole.apply(entry, targets)
        self._entries.append(entry)
        self._stamps.setdefault(entry.hlc.device_id, []).append(entry.stamp)
        if len(self._entries) % _STRIDE == 0:
            self._save()
        return targets, taken

    def _apart(self, entry: Entry, around: View) -> dict[str, Stamp] | None:
        """The stamps of the view that an entry is judged in, unless that is the view around it."""
        if entry.seen is None or entry.op["op"] not in JUDGED:
            return None
        stamps = self._cut(seen_by(entry, around.heads), around.heads)
        return None if stamps == around.heads else stamps

    def _cut(self, stamps: Seen, heads: Seen) -> dict[str, Stamp]:
        """The last stamp up to `stamps` that each device has among entries with these heads.

        What a device wrote in the snapshot is not known apart: stamps below its last there stay as they are.
        """
        cut: dict[str, Stamp] = {}
        for device, head in heads.items():
            limit = min(head, stamps.get(device, _NEVER))
            known = self._stamps[device]
            if held := bisect(known, limit):
                cut[device] = known[held - 1]
            elif limit != _NEVER and device in self._begun:
                cut[device] = limit
        return cut

    def _judge(self, index: int, entry: Entry, stamps: dict[str, Stamp]) -> list[str] | _Walk:
        """What the entry at `index` means in a view, or the walk that must be made to know."""
        found = self.found.get((entry.id, frozenset(stamps.items())))
        return self._start(index, entry, stamps) if found is None else found

    def _start(self, end: int, entry: Entry, stamps: dict[str, Stamp]) -> _Walk:
        within = (saved for saved in reversed(self._saved) if self._cut(stamps, saved.heads) == saved.heads)
        start = next(within, None)
        if start is None:
            raise BelowSnapshot
        last = self._last.get(entry.author)
        if last and start.end < last.end <= end and self._cut(stamps, last.heads) == last.view.heads:
            start = last
        self._steps += end - start.end
        if self._steps > _STEPS + _STEPS_PER_ENTRY * len(self._entries):
            raise Entangled
        return _Walk(end, entry, stamps, start.end, start.view.copy())

    def _walk(self, walk: _Walk) -> list[str]:
        """Make a walk and those that it depends on. One inside the other, they may go deeper than a call stack."""
        walks = [walk]
        while walks:
            inner = self._step(walks[-1])
            if inner:
                walks.append(inner)
                continue
            done = walks.pop()
            targets = done.view.targets(done.entry.op)
            self.found[done.entry.id, frozenset(done.stamps.items())] = targets
        self._last[walk.entry.author] = _Saved(walk.end, walk.view, dict(self.whole.heads))
        return targets

    def _step(self, walk: _Walk) -> _Walk | None:
        """Walk to the end, or to an entry that must itself be judged first."""
        while walk.index < walk.end:
            entry = self._entries[walk.index]
            if entry.stamp <= walk.stamps.get(entry.hlc.device_id, _NEVER):
                stamps = self._apart(entry, walk.view)
                found = walk.view.targets(entry.op) if stamps is None else self._judge(walk.index, entry, stamps)
                if isinstance(found, _Walk):
                    return found
                walk.view.apply(entry, found)
            walk.index += 1
        return None

    def _save(self) -> None:
        if not self.apart:
            return
        new = _Saved(len(self._entries), self.whole.copy(), dict(self.whole.heads))
        kept = self._saved[:1]
        for saved, after in pairwise([*self._saved[1:], new]):
            if after.end - kept[-1].end > new.end - after.end:
                kept.append(saved)
        self._saved = [*kept, new]

    def found_above(self, start: int, snapshot: View) -> Judged:
        """What is to be remembered of `judged[start:]` if only what is above a snapshot is kept."""
        remembered: Judged = {}
        for entry, stamps in self.judged[start:]:
            below = {device for device, head in snapshot.heads.items() if stamps.get(device, _NEVER) < head}
            if below and entry.seen is not None:
                named = {device: stamp for device, stamp in stamps.items() if device not in below}
                named |= {device: entry.seen[device] for device in below if device in entry.seen}
                remembered[entry.id, frozenset(named.items())] = self.found[entry.id, frozenset(stamps.items())]
        return remembered
