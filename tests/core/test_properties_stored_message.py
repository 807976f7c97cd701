"""A session's context is a pure function of its records, and every context of it survives a checkpoint."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from foldpoint.canonical import canonical
from foldpoint.hlc import Hlc
from foldpoint.projection import BelowSnapshot
from foldpoint.state import Record
from foldpoint.stored_message.checkpoint import read_checkpoint, restore_checkpoint, session_checkpoint
from foldpoint.stored_message.context import context_of
from foldpoint.stored_message.digest import settled
from foldpoint.stored_message.message import StoredMessage, decode_message, read_message
from foldpoint.stored_message.ops import Put, Remove, check_message, read_op
from foldpoint.stored_message.pairing import paired
from foldpoint.stored_message.refusals import Refused
from foldpoint.stored_message.render import RESUMED, render
from foldpoint.stored_message.session import SessionContext, Status, fold, read_snapshot
from foldpoint.stored_message.writing import canonical_message
from tests.fixtures.ops import THOROUGH, json_values, odd_texts
from tests.fixtures.stored_message_vectors import context_record, text

calls = st.sampled_from(["c1", "c2", "c3"])
partitions = st.sampled_from(["system", "history", "history"])
arguments = json_values.map(lambda value: canonical(value).decode()) | st.sampled_from(['{ "b":1, "a":1e2 }', "{"])
blocks: st.SearchStrategy[Any] = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": odd_texts}),
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["image", "image", "audio", "file"]),
            "source": st.sampled_from([{"kind": "url", "url": "u"}, {"kind": "base64", "data": "aW1n"}]),
        },
        optional={"media_type": st.just("a/b"), "provider_options": json_values},
    ),
)
bodies: st.SearchStrategy[Any] = st.one_of(
    st.fixed_dictionaries(
        {"form": st.just("inline"), "text": odd_texts | st.just("narration " * 9)},
        optional={"tool_call_id": st.none() | calls, "is_error": st.booleans()},
    ),
    st.fixed_dictionaries(
        {"form": st.just("reference"), "handle_id": st.just(1), "digest": st.just("d"), "preview": odd_texts},
        optional={"tool_call_id": st.none() | calls},
    ),
    st.fixed_dictionaries(
        {
            "form": st.just("structured"),
            "durable_content": st.builds(lambda b: {"blocks": b}, st.lists(blocks, max_size=3)),
        }
    ),
    st.fixed_dictionaries(
        {
            "form": st.just("structured"),
            "durable_tool_results": st.lists(
                st.fixed_dictionaries(
                    {"call_id": calls, "is_error": st.booleans(), "blocks": st.lists(blocks, max_size=2)}
                ),
                min_size=1,
                max_size=2,
            ),
        }
    ),
)
#: Messages that decode; the further gates refuse some of them.
messages: st.SearchStrategy[StoredMessage] = st.fixed_dictionaries(
    {
        "partition": partitions,
        "role": st.sampled_from(["user", "assistant", "assistant", "tool", "tool", "system"]),
        "body": bodies,
        "tool_calls": st.lists(
            st.fixed_dictionaries({"call_id": calls, "name": st.just("n"), "arguments": arguments}), max_size=2
        ),
        "tokens": st.integers(0, 60),
    }
).map(decode_message)


def admissible(message: StoredMessage) -> bool:
    try:
        check_message(message)
    except Refused:
        return False
    return True


histories = st.lists(messages.filter(admissible), max_size=6)

PLACES = [("system", 0), ("history", 0), ("history", 1), ("history", -1)]
#: Few ids, places and texts, so that authors often write the very same payload again.
PUTS: list[Any] = [
    {
        "op": "put",
        "message_id": message_id,
        "pos": pos,
        "message": {
            "partition": partition,
            "role": role,
            "body": {"form": "inline", "text": words},
            "tokens": len(words),
        },
    }
    for message_id in ("m1", "m2", "m3")
    for partition, pos in PLACES
    for role, words in (("user", "a"), ("user", "bb"), ("boss", "c"))
]
MOVES: list[Any] = [
    {"op": "move", "message_id": message_id, "pos": pos, "partition": partition}
    for message_id in ("m1", "m2", "m3")
    for partition, pos in PLACES
]
REMOVES: list[Any] = [{"op": "remove", "message_id": message_id} for message_id in ("m3", "m4")]
ILLEGIBLE: list[Any] = [{}, {"op": "put", "message_id": "m1"}, {"op": 1}, {**MOVES[0], "pos": 0.0}]

writes = st.tuples(
    st.tuples(st.integers(1, 12), st.integers(0, 1), st.sampled_from(["a", "b", "hosted-a-00000000"])),
    st.one_of(*(st.sampled_from(pool) for pool in (PUTS, PUTS, MOVES, REMOVES, ILLEGIBLE))),
)


@st.composite
def sessions(draw: st.DrawFn) -> list[Record]:
    """The records that a few devices write, some of which nobody can read, and one under an id that is not its own."""
    written = draw(st.lists(writes, unique_by=lambda write: write[0], max_size=14))
    records = [
        context_record(Hlc(*stamp), f"op-{number}", {"session": "s", **body})
        for number, (stamp, body) in enumerate(written)
    ]
    forged = [record._replace(hlc=Hlc(20, 0, "c"), op_id="op-forged") for record in records[:1]]
    return records + forged


def winners(records: list[Record]) -> list[Record]:
    """What the registry keeps: of one payload, the latest record."""
    return list({record.value()["id"]: record for record in sorted(records)}.values())


@THOROUGH
@given(records=sessions(), data=st.data())
def test_order_and_repetition_do_not_matter(records: list[Record], data: st.DataObject) -> None:
    repeated = data.draw(st.lists(st.sampled_from(records), max_size=4)) if records else []
    arrived = data.draw(st.permutations([*records, *repeated]))
    assert fold(arrived).text() == fold(records).text()


@THOROUGH
@given(records=sessions())
def test_the_registry_gives_what_all_records_give(records: list[Record]) -> None:
    legible = [record for record in records if read_op(record)]
    assert text(fold(winners(legible)).to_json()) == text(fold(records).to_json())


@THOROUGH
@given(records=sessions(), data=st.data())
def test_a_snapshot_and_what_came_later_give_the_whole(records: list[Record], data: st.DataObject) -> None:
    ordered = sorted(records)
    one, two = sorted((data.draw(st.integers(0, len(ordered))), data.draw(st.integers(0, len(ordered)))))
    session = SessionContext()
    seen: set[str] = set()
    for batch in (ordered[:one], ordered[one:two], ordered[two:]):
        ids = {op.id for record in batch if (op := read_op(record))}
        try:
            session = read_snapshot(session.extend(data.draw(st.permutations(batch))).text())
        except BelowSnapshot:
            assert ids & seen, "only a payload written again may move what lies below"
            return
        seen |= ids
    assert session.text() == fold(records).text()


@THOROUGH
@given(records=sessions())
def test_a_context_holds_what_was_put_and_never_removed(records: list[Record]) -> None:
    session = fold(records)
    ops = [op for record in records if (op := read_op(record))]
    removed = {op.message_id for op in ops if isinstance(op, Remove)}
    put = {op.message_id for op in ops if isinstance(op, Put)}
    assert set(session.message_ids()) == put - removed
    for op in ops:
        there = Status.APPLIED if op.message_id in put else Status.PENDING
        expected = Status.REMOVED if op.message_id in removed else there
        assert session.status(op) is (Status.APPLIED if isinstance(op, Remove) else expected)
    answer = session.to_json()
    carried = {"system": 0, "knowledge": 0, "history": 0}
    for message in answer["messages"]:
        carried[message["partition"]] += message["tokens"]
    assert answer["partition_tokens"] == carried
    assert answer["history_len"] == sum(message["partition"] == "history" for message in answer["messages"])


@THOROUGH
@given(history=histories)
def test_every_context_survives_its_checkpoint(history: list[StoredMessage]) -> None:
    document = read_checkpoint(canonical(session_checkpoint("s", history)))
    context = restore_checkpoint(document)
    assert context.partition_tokens == context_of(history).partition_tokens
    assert text(session_checkpoint("s", context.messages())) == text(document)


@THOROUGH
@given(message=messages.filter(admissible))
def test_a_canonical_message_is_its_own_canonical_message(message: StoredMessage) -> None:
    spelled = canonical_message(message)
    assert text(canonical_message(spelled)) == text(spelled)
    assert text(read_message(text(spelled).encode())) == text(spelled)
    assert text(session_checkpoint("s", [spelled])) == text(session_checkpoint("s", [message]))


@THOROUGH
@given(history=histories, window=st.integers(0, 200))
def test_a_smaller_window_shows_the_end_of_what_a_large_one_shows(history: list[StoredMessage], window: int) -> None:
    context = context_of(history)
    shown, whole = render(context, window), render(context, 10**6)
    end, turns = ([turn for turn in each.turns if turn != RESUMED] for each in (shown, whole))
    assert end == turns[len(turns) - len(end) :]
    assert (shown.estimated_tokens > window) is (shown.budget_overflow is not None)


@THOROUGH
@given(history=histories)
def test_what_reaches_a_provider_is_paired(history: list[StoredMessage]) -> None:
    turns = paired(render(context_of(history), 10**6).turns)
    unanswered: set[str] = set()
    for turn in turns:
        if not turn.results:
            assert not unanswered
            assert turn.role != "tool"
            unanswered = {call.id for call in turn.tool_calls}
        for part in turn.results:
            assert part["call_id"] in unanswered
            unanswered.remove(part["call_id"])
    assert not unanswered
    assert paired(turns) == turns


@THOROUGH
@given(value=json_values)
def test_settled_floats_stay_settled(value: Any) -> None:
    once = settled(value)
    assert text(settled(once)) == text(once)
