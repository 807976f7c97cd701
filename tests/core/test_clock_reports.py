"""R12: stamps rise above everything issued or received, on equal times and through a bulk import."""

import pytest

from foldpoint.hlc import U32_MAX, Clock, CounterExhausted, Hlc


def test_R12_a_stamp_is_above_one_received_at_the_same_time() -> None:
    clock = Clock()
    clock.tick(7, "mac")
    clock.observe(Hlc(7, 9, "phone"))
    assert clock.tick(7, "mac") > Hlc(7, 9, "phone")


def test_R12_seventy_thousand_stamps_fit_in_one_millisecond() -> None:
    clock = Clock()
    stamps = [clock.tick(7, "mac") for _ in range(70_000)]
    assert stamps == sorted(set(stamps))


def test_R12_receiving_a_batch_does_not_use_the_counter_up() -> None:
    clock = Clock()
    for counter in range(70_000):
        clock.observe(Hlc(7, counter, "phone"))
    assert clock.tick(7, "mac") == Hlc(7, 70_000, "mac")


def test_R12_a_full_counter_is_an_error_and_never_wraps() -> None:
    clock = Clock(7, U32_MAX)
    with pytest.raises(CounterExhausted):
        clock.tick(7, "mac")
    assert clock.tick(8, "mac") == Hlc(8, 0, "mac")
