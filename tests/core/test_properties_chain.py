"""What a device writes verifies, and nothing that was changed afterwards does (car-sync.md §2–5, §9)."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from foldpoint.canonical import U64_MAX, canonical
from foldpoint.chain import ChainError, IdMismatch, verify_log
from foldpoint.checkpoint import checkpoint_from_ops
from foldpoint.device_log import DeviceLog
from foldpoint.hlc import U32_MAX, Clock, CounterExhausted, Hlc
from foldpoint.op import Op
from tests.core.memory_relay import MemoryRelay
from tests.fixtures.ops import THOROUGH, arrivals, chain_prefixes, json_values, logs, odd_texts, wall_readings, writes

counters = st.integers(0, 3) | st.integers(0, U32_MAX - 1)
heard = st.builds(Hlc, wall_readings, counters, odd_texts)


@THOROUGH
@given(events=st.lists(wall_readings | heard, max_size=20))
def test_every_stamp_is_above_all_issued_and_witnessed(events: list[int | Hlc]) -> None:
    clock, known = Clock(), [(0, 0)]
    for event in events:
        if isinstance(event, Hlc):
            clock.observe(event)
            known.append(event[:2])
            continue
        try:
            stamp = clock.tick(event, "me")
        except CounterExhausted:
            assert max(known) >= (event, U32_MAX)
            continue
        assert stamp[:2] > max(known)
        known.append(stamp[:2])


@THOROUGH
@given(log=logs(), data=st.data())
def test_what_devices_write_verifies_in_any_order(log: list[Op], data: st.DataObject) -> None:
    verify_log(data.draw(st.permutations(log)))


@THOROUGH
@given(log=logs(), data=st.data())
def test_relay_takes_what_devices_write(log: list[Op], data: st.DataObject) -> None:
    relay = MemoryRelay()
    below, _ = data.draw(chain_prefixes(log))
    for part in (below, log):
        for device in sorted({op.device_id for op in part}):
            relay.push(device, [op for op in data.draw(arrivals(part)) if op.device_id == device], 0)
    assert relay.pull("reader", {}, 0) == sorted(log, key=lambda op: (op.hlc, op.op_id))


@THOROUGH
@given(log=logs(min_size=1), data=st.data())
def test_a_changed_field_is_refused(log: list[Op], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(log) - 1))
    changed = data.draw(changes(log[index]))
    with pytest.raises(ChainError):
        verify_log([*log[:index], changed, *log[index + 1 :]])


@THOROUGH
@given(log=logs(min_size=2), data=st.data())
def test_a_changed_field_is_refused_even_under_a_new_id(log: list[Op], data: st.DataObject) -> None:
    followed = [op for op in log if any(later.prev == op.op_id for later in log)]
    assume(followed)
    op = data.draw(st.sampled_from(followed))
    changed = data.draw(changes(op))
    renamed = replace(changed, op_id=changed.computed_id())
    assume(renamed.op_id != op.op_id)
    with pytest.raises(ChainError):
        verify_log([renamed if other is op else other for other in log])


@THOROUGH
@given(log=logs(min_size=1), wrong=odd_texts)
def test_a_wrong_id_is_refused_by_its_name(log: list[Op], wrong: str) -> None:
    with pytest.raises(IdMismatch) as refused:
        verify_log([replace(log[0], op_id=wrong), *log[1:]])
    assert refused.value.fields == {"op_id": wrong}


@THOROUGH
@given(log=logs(min_size=1), data=st.data())
def test_device_resumes_the_same_from_log_and_checkpoint(log: list[Op], data: st.DataObject) -> None:
    below, tail = data.draw(chain_prefixes(log))
    device = data.draw(st.sampled_from(log)).device_id
    resumed = DeviceLog.resume(device, data.draw(st.permutations(log)))
    assert resumed == DeviceLog.resume_anchored(device, checkpoint_from_ops(below), data.draw(st.permutations(tail)))
    scope, (tag, payload) = "personal", data.draw(writes)
    verify_log([*log, resumed.append(data.draw(wall_readings), scope, tag, payload)])


@st.composite
def changes(draw: st.DrawFn, op: Op) -> Op:
    """The op with another value in one field, under its old id."""
    wall_ms, counter, stamper = op.hlc
    field, value = draw(
        st.tuples(st.just("device_id"), odd_texts)
        | st.tuples(st.just("seq"), st.integers(0, 3) | st.integers(0, U64_MAX))
        | st.tuples(st.just("prev"), st.none() | odd_texts)
        | st.tuples(
            st.just("hlc"),
            st.builds(Hlc, wall_readings, st.just(counter), st.just(stamper))
            | st.builds(Hlc, st.just(wall_ms), counters, st.just(stamper))
            | st.builds(Hlc, st.just(wall_ms), st.just(counter), odd_texts),
        )
        | st.tuples(st.just("scope"), st.just("personal") | odd_texts.map("shared:".__add__))
        | st.tuples(st.just("surface"), st.sampled_from(["knowledge", "conversation", "intent", "registry:x"]))
        | st.tuples(st.just("payload"), json_values)
    )
    changed = replace(op, **{field: value})
    changed = replace(changed, payload_text=canonical(changed.payload))
    assume(changed.text() != op.text())
    return changed
