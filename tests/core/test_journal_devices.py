"""What two devices may mean by the same op (journal.md §8.3–8.4), told one case at a time."""

from typing import Any

import pytest

from foldpoint.canonical import Unreadable, canonical
from foldpoint.hlc import Hlc
from foldpoint.journal.claims import claim
from foldpoint.journal.fold import fold_journal, fold_onto
from foldpoint.journal.handles import Renamed, sessions_named
from foldpoint.journal.records import Stamp, write_payload
from foldpoint.journal.recovery import recover
from foldpoint.journal.snapshot import Snapshot, read_snapshot, write_snapshot
from foldpoint.journal.state import JournalState, Place
from foldpoint.journal.views import Entangled
from foldpoint.projection import BelowSnapshot, author_of
from foldpoint.state import Record


class Session:
    """Records of one session, a millisecond apart; `mark` is a stamp to have seen up to."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def write(self, device: str, op: str, seen: dict[str, Stamp] | None = None, **fields: Any) -> str:
        wall_ms = len(self.records)
        payload = write_payload(author_of(device), "s", {"op": op, **fields}, seen=seen, source=wall_ms)
        self.records.append(Record(Hlc(wall_ms, 0, device), f"op-{wall_ms}", canonical(payload)))
        return str(payload["id"])

    def say(self, device: str, content: str) -> None:
        self.write(device, "message", message={"supercode_turn": 1, "ts": "", "role": "user", "content": content})

    def mark(self) -> Stamp:
        return len(self.records) - 1, 0

    def state(self) -> JournalState:
        return fold_journal(self.records)

    def wire(self) -> dict[str, Any]:
        return self.state().to_json()

    def said(self) -> list[str]:
        return contents(self.wire()["messages"])


def contents(messages: Any) -> list[str]:
    return [message["content"] for message in messages]


def test_a_rewind_cuts_what_its_author_saw_and_keeps_what_was_said_meanwhile() -> None:
    session = Session()
    for content in "abc":
        session.say("laptop", content)
    phone_saw = {"laptop": session.mark()}
    session.say("laptop", "d")
    session.write("phone", "rewind", phone_saw, to=1)
    assert session.said() == ["a", "d"]
    session.write("laptop", "unrewind")
    assert session.said() == ["a", "d", "b", "c"]


def test_without_seen_a_rewind_counts_in_everything_before_it() -> None:
    session = Session()
    for content in "abcd":
        session.say("laptop", content)
    session.write("phone", "rewind", to=1)
    assert session.said() == ["a"]


def test_two_undo_one_rewind_and_it_comes_back_once() -> None:
    session = Session()
    session.say("laptop", "a")
    session.write("laptop", "rewind", to=0)
    both_saw = {"laptop": session.mark()}
    session.write("laptop", "unrewind", both_saw)
    session.write("phone", "unrewind", both_saw)
    assert session.said() == ["a"]
    assert session.wire()["undo_stack"] == []


def test_an_undo_takes_the_frame_its_author_saw_from_wherever_it_is() -> None:
    session = Session()
    for content in "abc":
        session.say("laptop", content)
    session.write("laptop", "rewind", to=2)
    phone_saw = {"laptop": session.mark()}
    session.write("laptop", "rewind", to=1)
    session.write("phone", "unrewind", phone_saw)
    state = session.wire()
    assert contents(state["messages"]) == ["a", "c"]
    assert [contents(frame) for frame in state["undo_stack"]] == [["b"]]


def test_an_undo_that_saw_no_rewind_restores_nothing_but_still_forgets_the_checkpoint() -> None:
    session = Session()
    session.say("laptop", "a")
    session.write("laptop", "rewind", to=0)
    session.write("laptop", "checkpoint", messages=1)
    session.say("laptop", "b")
    session.write("phone", "unrewind", {})
    state = session.wire()
    assert (contents(state["messages"]), state["unpersisted"], state["checkpoint_messages"]) == (["b"], [], None)
    assert state["last_checkpoints"] == {}
    assert [contents(frame) for frame in state["undo_stack"]] == [["a"]]


def test_two_take_one_entry_and_it_is_told_with_both() -> None:
    session = Session()
    entry = session.write("laptop", "enqueue", queue="steer", text="go")
    session.write("laptop", "enqueue", queue="steer", text="then")
    both_saw = {"laptop": session.mark()}
    first = session.write("laptop", "dequeue", both_saw, queue="steer", count=1)
    second = session.write("phone", "dequeue", both_saw, queue="steer", count=1)
    state = session.wire()
    assert state["steer_queue"] == ["then"]
    told = {"queue": "steer", "entry": entry, "text": "go", "dequeues": [first, second]}
    assert state["double_delivery"] == [told]
    third = session.write("desk", "dequeue", both_saw, queue="steer", count=1)
    assert session.wire()["double_delivery"] == [{**told, "dequeues": [first, second, third]}]


def test_views_nest() -> None:
    """What a dequeue meant is judged anew among what the one who saw it had seen."""
    session = Session()
    session.write("a", "enqueue", queue="steer", text="from a")
    a_wrote = session.mark()
    session.write("b", "enqueue", queue="steer", text="from b")
    session.write("b", "dequeue", {"a": a_wrote}, queue="steer", count=1)
    b_wrote = session.mark()
    session.write("c", "dequeue", {"b": b_wrote}, queue="steer", count=1)
    state = session.wire()
    assert state["steer_queue"] == ["from b"]
    assert state["double_delivery"] == []


def test_a_checkpoint_covers_what_its_author_saw() -> None:
    session = Session()
    session.say("laptop", "a")
    phone_saw = {"laptop": session.mark()}
    session.say("laptop", "b")
    session.say("phone", "c")
    session.write("phone", "checkpoint", phone_saw, messages=3)
    state = session.state()
    assert contents(state.to_json()["unpersisted"]) == ["b"]
    session.write("laptop", "checkpoint", {}, messages=4)
    state = session.state()
    assert state.to_json()["unpersisted"] == []
    assert (state.checkpoint_messages, state.last_checkpoints) == (4, {"phone": 3, "laptop": 4})
    assert contents(message.value for message in state.unpersisted_by("phone")) == ["b"]
    assert contents(message.value for message in state.unpersisted_by("laptop")) == ["c"]


def test_each_device_recovers_what_its_own_transcript_lacks() -> None:
    session = Session()
    for content in "ab":
        session.say("laptop", content)
    session.write("laptop", "checkpoint", messages=3)
    session.say("phone", "c")
    session.write("phone", "checkpoint", messages=4)
    session.say("phone", "d")
    state = session.state()
    assert contents(recover(state, 4).messages) == ["d"]
    assert contents(recover(state, 4, "phone").messages) == ["d"]
    assert contents(recover(state, 3, "laptop").messages) == ["c", "d"]
    assert contents(recover(state, 1, "desk").messages) == ["a", "b", "c", "d"]
    refused = recover(state, 4, "laptop")
    assert refused.to_json() == {
        "messages": [],
        "unpersisted": 2,
        "checkpoint_messages": 3,
        "transcript_messages": 4,
    }


def test_a_hosted_writer_stays_itself_when_its_chain_starts_again() -> None:
    session = Session()
    session.say("hosted-desk-00000001", "a")
    session.write("hosted-desk-00000001", "checkpoint", messages=2)
    session.write("hosted-desk-00000002", "rewind", {}, to=0)
    state = session.state()
    assert state.to_json()["messages"] == []
    session.write("hosted-desk-00000002", "checkpoint", messages=1)
    session.write("hosted-desk-00000002", "upgrade", from_version=0, to_version=2, original="s.v0.jsonl")
    state = session.state()
    assert (state.last_checkpoints, state.upgraded_by) == ({"desk": 1}, ["desk"])


def test_plans_renames_and_upgrades_follow_the_order_of_all() -> None:
    session = Session()
    for device in ("laptop", "phone"):
        session.write(device, "plan", steps=[{"step": device, "status": "pending"}])
        names: dict[str, Any] = {"from": "s", "to": device}
        session.write(device, "rename", **names)
        session.write(device, "upgrade", from_version=0, to_version=2, original=device)
    state = session.wire()
    assert state["plan"] == [{"step": "phone", "status": "pending"}]
    assert (state["handle"], state["renames"]) == ("phone", [["s", "laptop"], ["s", "phone"]])
    assert (state["upgrades"], state["upgraded_by"]) == ([[0, 2, "laptop"], [0, 2, "phone"]], ["laptop", "phone"])
    assert session.state().renamed_at == Place(Hlc(4, 0, "phone"), "op-4")


def test_a_handle_is_the_session_renamed_last() -> None:
    renamed = {
        "s": Renamed("trip", Place(Hlc(1, 0, "b"), "op-1")),
        "t": Renamed("trip", Place(Hlc(2, 0, "a"), "op-2")),
        "u": Renamed("work", Place(Hlc(3, 0, "a"), "op-3")),
        "v": Renamed("trip", Place(Hlc(1, 0, "b"), "op-0")),
    }
    assert sessions_named("trip", renamed) == ["t", "s", "v"]
    assert sessions_named("nothing", renamed) == []


def test_a_claim_takes_what_no_claim_took_and_its_dequeue_takes_the_same_from_the_queue() -> None:
    session = Session()
    ids = [session.write("laptop", "enqueue", queue="steer", text=text) for text in ("one", "two", "three")]
    first = claim(session.state(), "steer", 1, taken=set())
    assert [entry.text for entry in first.entries] == ["one"]
    second = claim(session.state(), "steer", 5, taken={ids[0]})
    assert [entry.id for entry in second.entries] == ids[1:]
    assert second.dequeue == {"op": "dequeue", "queue": "steer", "count": 3}
    assert claim(session.state(), "steer", 1, taken=set(ids)).dequeue is None
    assert claim(session.state(), "follow_up", 1, taken=set()) == ([], None, first.seen, [])


def test_what_arrives_later_below_a_claim_is_not_taken_by_it() -> None:
    session = Session()
    session.write("laptop", "enqueue", queue="steer", text="one")
    claimed = claim(session.state(), "steer", 1, taken=set())
    late = Record(
        Hlc(0, 0, "a late phone"),
        "op-late",
        canonical(write_payload("a late phone", "s", {"op": "enqueue", "queue": "steer", "text": "late"})),
    )
    assert claimed.dequeue is not None
    payload = write_payload("desk", "s", claimed.dequeue, seen=claimed.seen)
    dequeue = Record(Hlc(9, 0, "hosted-desk-00000001"), "op-9", canonical(payload))
    assert fold_journal([late, *session.records, dequeue]).to_json()["steer_queue"] == ["late"]


def test_stamps_made_up_by_many_devices_end_in_good_time() -> None:
    session, devices, number = Session(), "abcdefgh", 1
    for turn in range(600):
        number = (number * 25214903917 + 11) % 2**48
        seen = {device: ((number >> 12 + place) % (turn + 1), 0) for place, device in enumerate(devices)}
        if number >> 40 & 1:
            session.write(devices[(number >> 20) % 8], "enqueue", seen, queue="steer", text="x")
        else:
            session.write(devices[(number >> 20) % 8], "dequeue", seen, queue="steer", count=1)
    with pytest.raises(Entangled):
        session.state()


def test_a_record_that_was_skipped_is_in_the_snapshot_all_the_same() -> None:
    session = Session()
    session.say("laptop", "a")
    session.write("laptop", "teleport")
    snapshot = fold_onto(Snapshot(), session.records, recent=0).snapshot
    assert (snapshot.state.at, snapshot.state.skipped) == (session.records[-1][:2], 1)
    with pytest.raises(BelowSnapshot):
        fold_onto(snapshot, session.records[-1:])


def test_a_third_who_takes_an_entry_is_told_of_after_a_snapshot() -> None:
    """The dequeues of a snapshot are known to a later one that had not seen them, as long as it was folded once."""
    session = Session()
    session.write("laptop", "enqueue", queue="steer", text="go")
    all_saw = {"laptop": session.mark()}
    for device in ("laptop", "phone", "desk"):
        session.write(device, "dequeue", all_saw, queue="steer", count=1)
    for below in range(1, 4):
        snapshot = fold_onto(Snapshot(), session.records, recent=4 - below).snapshot
        text = write_snapshot(snapshot)
        again = read_snapshot(text)
        assert again == snapshot
        assert again.state == fold_journal(session.records[:below])
        for before in (snapshot, again):
            assert fold_onto(before, session.records[below:]).state.to_json() == session.wire()
            assert write_snapshot(before) == text


def test_what_was_meant_is_remembered_by_what_was_seen_not_by_the_stamps_that_said_so() -> None:
    session = Session()
    for device in "aac":
        session.say(device, device)
    session.write("c", "checkpoint", messages=2)
    c_checked = session.mark()
    session.say("c", "late")
    session.write("b", "rewind", {"a": (0, 0), "c": c_checked}, to=0)
    snapshot = fold_onto(Snapshot(), session.records, recent=4).snapshot
    session.write("d", "rewind", {"a": (1, 0), "b": session.mark(), "c": c_checked}, to=0)
    assert snapshot.state.at == session.records[1][:2]
    assert fold_onto(snapshot, session.records[2:]).state == session.state()


def test_a_snapshot_of_another_version_is_not_read() -> None:
    text = write_snapshot(Snapshot())
    assert write_snapshot(read_snapshot(text)) == text
    with pytest.raises(Unreadable, match="another version"):
        read_snapshot(text.replace(b'"version":2', b'"version":0'))
