"""Claims hand every entry of a queue out exactly once, unless a device took it (journal.md §8.4)."""

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from foldpoint.device_log import DeviceLog
from foldpoint.journal.claims import claim, claimed_by
from foldpoint.journal.fold import fold_journal
from foldpoint.journal.records import SURFACE, read_record
from foldpoint.journal.state import JournalState
from foldpoint.op import Op, make_op
from tests.core.journal_histories import Step, steps, written
from tests.core.journal_model import Model
from tests.fixtures.journal_vectors import records_of
from tests.fixtures.ops import THOROUGH

OFTEN = settings(THOROUGH, max_examples=1_000)
WRITERS = ("w", "a")


@dataclass
class Server:
    """What has arrived, and what was handed out. One of its writers has the name of a device, so their ids are one."""

    ops: list[Op] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    logs: dict[str, DeviceLog] = field(
        default_factory=lambda: {writer: DeviceLog(f"hosted-{writer}-00000000") for writer in WRITERS}
    )

    @property
    def state(self) -> JournalState:
        return fold_journal(records_of(self.ops))

    def claim(self, writer: str, count: int) -> int:
        """Carry a claim out; how many entries it was handed."""
        found = claim(self.state, "steer", count, set(self.taken))
        if found.entries:
            log = self.logs[writer]
            for op in self.ops:
                log.observe(op.hlc)
            payload = found.payload(writer, "s", str(len(self.ops)))
            self.ops.append(log.append(0, "personal", SURFACE, payload))
            self.taken += [queued.id for queued in found.entries]
        return len(found.entries)


@OFTEN
@given(steps(), st.lists(st.tuples(st.integers(0, 16), st.sampled_from(WRITERS), st.integers(1, 3))), st.data())
def test_each_entry_is_handed_out_once_or_a_device_took_it(
    history: list[Step], claims: list[tuple[int, str, int]], data: st.DataObject
) -> None:
    """Whatever arrives when, and whatever its author says again, later, so that it moves."""
    server, ops = Server(), written(history)
    repeated = data.draw(st.lists(st.sampled_from(ops), max_size=2))
    for at, op in enumerate(data.draw(st.permutations([*ops, *said_again(ops, repeated)]))):
        for when, writer, count in claims:
            if when == at:
                server.claim(writer, count)
        server.ops.append(op)
    while server.claim("w", 2):
        pass
    records = records_of(server.ops)
    assert max(Counter(server.taken).values(), default=1) == 1
    assert {name.hex() for record in records for name in claimed_by(record)} == set(server.taken)
    entries = tuple(entry for record in records if (entry := read_record(record)))
    queued = {entry.id for entry in entries if entry.op["op"] == "enqueue" and entry.op["queue"] == "steer"}
    claiming = {entry.id for entry in entries if entry.claimed is not None}
    meant = Model(entries).taken
    assert all(set(meant[entry]) - claiming for entry in queued - set(server.taken))
    assert not {waiting.id for waiting in server.state.view.queues["steer"]} - set(server.taken)


def said_again(ops: list[Op], repeated: list[Op]) -> list[Op]:
    """The same payloads by the same devices, above all these ops."""
    log = DeviceLog("")
    for op in ops:
        log.observe(op.hlc)
    again = []
    for op in repeated:
        hlc = log.clock.tick(0, op.device_id)
        again.append(make_op(op.device_id, op.seq, op.prev, hlc, op.scope, op.surface, op.payload))
    return again
