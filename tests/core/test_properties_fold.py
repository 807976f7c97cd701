"""The fold is a pure function of the set of ops, however they arrive (car-sync.md §6)."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from foldpoint.canonical import read_json
from foldpoint.checkpoint import checkpoint_from_ops, checkpoint_onto, read_checkpoint, verify_anchored
from foldpoint.fold import fold, fold_at, fold_onto
from foldpoint.frontier import frontier_of
from foldpoint.hlc import Hlc
from foldpoint.op import Op
from foldpoint.state import SyncState, read_state, state_hash
from tests.core.touched import fold_touched
from tests.fixtures.ops import THOROUGH, arrivals, batches, chain_prefixes, intent_writes, logs


@THOROUGH
@given(log=logs(), data=st.data())
def test_order_and_repetition_do_not_matter(log: list[Op], data: st.DataObject) -> None:
    arrived = fold(data.draw(arrivals(log)))
    assert arrived.text() == fold(log).text()
    assert state_hash(arrived) == state_hash(fold(log))


@THOROUGH
@given(log=logs(), data=st.data())
def test_folding_batch_by_batch_is_folding_at_once(log: list[Op], data: st.DataObject) -> None:
    state = SyncState()
    for batch in data.draw(batches(log)):
        state = fold_onto(state, batch)
    assert state.text() == fold(log).text()


@THOROUGH
@given(log=logs(intent_writes), data=st.data())
def test_fence_rises_the_same_way_in_any_batches(log: list[Op], data: st.DataObject) -> None:
    state = SyncState()
    for batch in data.draw(batches(log)):
        state = fold_onto(state, batch)
    assert state.text() == fold(log).text()


@THOROUGH
@given(log=logs(), data=st.data())
def test_order_does_not_matter_even_for_forged_ids_and_stamps(log: list[Op], data: st.DataObject) -> None:
    name, stamp = st.sampled_from(["op-1", "op-2", "op-3"]), st.sampled_from([Hlc(1, 0, "d"), Hlc(2, 0, "d")])
    forged = [replace(op, op_id=data.draw(name), hlc=data.draw(stamp)) for op in log]
    assert fold(data.draw(arrivals(forged))).text() == fold(forged).text()


@THOROUGH
@given(log=logs(), data=st.data())
def test_folding_touched_keys_only_is_folding_everything(log: list[Op], data: st.DataObject) -> None:
    state = SyncState()
    for batch in data.draw(batches(log)):
        fold_touched(state, batch)
    assert state.text() == fold(log).text()


@THOROUGH
@given(log=logs(intent_writes), data=st.data())
def test_folding_touched_intents_only_is_folding_everything(log: list[Op], data: st.DataObject) -> None:
    state = SyncState()
    for batch in data.draw(batches(log)):
        fold_touched(state, batch)
    assert state.text() == fold(log).text()


@THOROUGH
@given(log=logs(), data=st.data())
def test_checkpoint_and_tail_are_the_checkpoint_of_everything(log: list[Op], data: st.DataObject) -> None:
    below, tail = data.draw(chain_prefixes(log))
    checkpoint = checkpoint_from_ops(below)
    checkpoint.verify()
    verify_anchored(checkpoint, tail)
    whole, grown = checkpoint_from_ops(log), checkpoint_onto(checkpoint, data.draw(st.permutations(tail)))
    assert b"".join(grown.pieces()) == b"".join(whole.pieces())


@THOROUGH
@given(log=logs(), data=st.data())
def test_state_at_a_frontier_is_the_fold_of_what_it_holds(log: list[Op], data: st.DataObject) -> None:
    below, _ = data.draw(chain_prefixes(log))
    assert fold_at(data.draw(arrivals(log)), frontier_of(below)).text() == fold(below).text()


@THOROUGH
@given(log=logs())
def test_state_and_checkpoint_survive_their_json_form(log: list[Op]) -> None:
    checkpoint = checkpoint_from_ops(log)
    text = b"".join(checkpoint.pieces())
    again = read_checkpoint(read_json(text))
    again.verify()
    assert b"".join(again.pieces()) == text
    assert read_state(read_json(checkpoint.state.text())).text() == checkpoint.state.text()
