"""Two devices, one of them away for so long that it is evicted and has to rebase."""

from typing import Any

import pytest

from foldpoint.canonical import Json
from foldpoint.state import state_hash
from tests.core.memory_device import MemoryDevice
from tests.core.memory_relay import FrontierTruncated, MemoryRelay
from tests.fixtures.vectors import story, text

HORIZON_MS = 1_000
SESSION = story("relay.json/session")


def check_pump(device: MemoryDevice, now: int, expected: Any) -> None:
    pumped = device.pump(now)
    assert text({**pumped._asdict(), "acked": pumped.acked.to_json()}) == text(without_call(expected))


def without_call(expected: Any) -> dict[str, Json]:
    return {name: value for name, value in expected.items() if name != "pump"}


def test_session_of_two_devices() -> None:
    first, cold, later, published, collected, cut_off, rebased, again, received, final = SESSION
    relay = MemoryRelay(HORIZON_MS)
    mac_a, mac_b = MemoryDevice("mac-a", relay), MemoryDevice("mac-b", relay)

    for name in ("a0", "a1", "a2"):
        mac_a.write(10, {"id": name})
    check_pump(mac_a, 10, first)
    check_pump(mac_b, 10, cold)

    mac_a.write(5_000, {"id": "a3"})
    check_pump(mac_a, 5_000, later)
    checkpoint = mac_a.publish_checkpoint(5_000)
    assert b"".join(checkpoint.pieces()).decode() == text(published["checkpoint"])
    assert {"dropped": relay.gc()} == collected["gc"]

    mac_b.write(5_000, {"id": "b-unpushed"})
    with pytest.raises(FrontierTruncated) as truncated:
        mac_b.pump(5_000)
    assert truncated.value.chain.device_id == cut_off["err"]["device_id"]
    assert truncated.value.chain.dropped_below == cut_off["err"]["dropped_below"]

    mac_b.rebase(5_000)
    assert rebased["result"] is True
    check_pump(mac_b, 5_000, again)
    check_pump(mac_a, 5_000, received)
    assert text([op.to_json() for op in mac_b.ops]) == text(final["mac_b_ops"])
    assert [state_hash(mac_a.state), state_hash(mac_b.state)] == final["state_hashes"]
