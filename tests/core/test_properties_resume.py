"""Resumed messages are what a provider accepts, and lose no text (car-sync.md §7.5)."""

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from foldpoint.fold import fold
from foldpoint.hlc import Hlc
from foldpoint.op import Op
from foldpoint.resume import Repair, Resumed, resume
from foldpoint.state import Record
from foldpoint.transcript import Turn, conversation_ids, transcript, turn_of
from tests.fixtures.ops import THOROUGH, logs, turns

conversation_logs = logs(st.tuples(st.just("conversation"), turns), max_size=20)


def conversations(log: list[Op]) -> list[tuple[list[Turn], Resumed]]:
    state = fold(log)
    transcripts = [transcript(state, name) for name in conversation_ids(state)]
    return [(said, resume(said)) for said in transcripts]


@THOROUGH
@given(log=conversation_logs)
def test_speakers_alternate(log: list[Op]) -> None:
    for _, resumed in conversations(log):
        for before, message in pairwise(resumed.messages):
            assert before["role"] != message["role"] or message["role"] == "tool_result"


@THOROUGH
@given(log=conversation_logs)
def test_no_result_is_an_orphan_and_no_call_dangles(log: list[Op]) -> None:
    for _, resumed in conversations(log):
        for before, message in pairwise([{"role": "start"}, *resumed.messages, {"role": "end"}]):
            calls = bool(before.get("tool_calls"))
            if message["role"] == "tool_result":
                assert calls or before["role"] == "tool_result"
            else:
                assert not calls


@THOROUGH
@given(log=conversation_logs)
def test_every_text_said_by_user_or_assistant_is_kept(log: list[Op]) -> None:
    for said, resumed in conversations(log):
        for role in ("user", "assistant"):
            kept = [message["content"] for message in resumed.messages if message["role"] == role]
            texts = [turn.content for turn in said if turn.role == role]
            assert "\n\n".join(filter(None, kept)) == "\n\n".join(filter(None, texts))


@THOROUGH
@given(log=conversation_logs)
def test_report_has_one_entry_per_repaired_turn_in_order(log: list[Op]) -> None:
    for said, resumed in conversations(log):
        by_id = {turn.record.op_id: turn for turn in said}
        repaired = [repair["op_id"] for repair in resumed.repairs]
        assert repaired == [op_id for op_id in by_id if op_id in set(repaired)]
        for repair in resumed.repairs:
            turn = by_id[repair["op_id"]]
            match Repair(repair["repair"]):
                case Repair.ORPHAN_DROPPED:
                    assert (turn.role, turn.tool_use_id) == ("tool", repair["tool_use_id"])
                case Repair.MERGED:
                    assert by_id[repair["into"]].role == turn.role != "tool"
                case Repair.CALLS_CLEARED:
                    assert turn.role == "assistant"
                    assert repair["calls"] > 0


@THOROUGH
@given(log=conversation_logs)
def test_report_accounts_for_every_turn_and_call(log: list[Op]) -> None:
    for said, resumed in conversations(log):
        done = Counter(repair["repair"] for repair in resumed.repairs)
        assert len(said) == len(resumed.messages) + done[Repair.MERGED] + done[Repair.ORPHAN_DROPPED]
        kept = sum(len(message.get("tool_calls", ())) for message in resumed.messages)
        cleared = sum(repair.get("calls", 0) for repair in resumed.repairs)
        assert kept + cleared == sum(len(turn.tool_calls) for turn in said if turn.role == "assistant")


@THOROUGH
@given(log=conversation_logs)
def test_what_needs_no_repair_has_an_empty_report(log: list[Op]) -> None:
    for said, resumed in conversations(log):
        if not resumed.repairs:
            assert [message["content"] for message in resumed.messages] == [turn.content for turn in said]


def test_a_long_monologue_resumes_at_once() -> None:
    record = Record(Hlc(0, 0, "d"), "", b'{"content":"%b"}' % (b"x" * 1_000))
    resumed = resume(turn for i in range(50_000) if (turn := turn_of(record._replace(op_id=f"op-{i}"))))
    assert len(resumed.messages[0]["content"]) == 50_000 * 1_002 - 2
