"""What an executor may conclude, story by story (server.md §6)."""

import pytest

from foldpoint.device_log import DeviceLog
from foldpoint.fold import fold
from foldpoint.op import Op
from foldpoint.run_seen import Status, sightings, status_of

#: Intents of one run, oldest first, as status and epoch.
Story = list[tuple[str, int]]


def ops(story: Story, run: str = "r") -> list[Op]:
    device = DeviceLog("d")
    return [
        device.append(0, "personal", "intent", {"id": run, "agent_id": "ada", "epoch": epoch, "status": status})
        for status, epoch in story
    ]


@pytest.mark.parametrize(
    ("story", "status"),
    [
        ([], Status.NOT_STARTED),
        ([("pending", 1)], Status.IN_DOUBT),
        ([("pending", 1), ("committed", 1)], Status.COMMITTED),
        ([("committed", 1)], Status.COMMITTED),
        ([("committed", 1), ("pending", 2), ("failed", 3)], Status.COMMITTED),
        ([("failed", 1)], Status.FAILED),
        ([("pending", 1), ("failed", 1)], Status.FAILED),
        ([("pending", 1), ("failed", 1), ("pending", 1)], Status.IN_DOUBT),
        ([("failed", 1), ("pending", 1)], Status.IN_DOUBT),
        ([("pending", 1), ("failed", 2)], Status.IN_DOUBT),
        ([("pending", 2), ("failed", 1)], Status.IN_DOUBT),
        ([("pending", 1), ("pending", 2), ("failed", 2)], Status.IN_DOUBT),
        ([("pending", 1), ("pending", 2), ("failed", 2), ("failed", 1)], Status.FAILED),
        ([("pending", 1), ("unheard of", 1)], Status.IN_DOUBT),
    ],
)
def test_status_of_a_run(story: Story, status: Status) -> None:
    log = ops(story)
    assert status_of(fold(log).committed_run("ada", "r"), sightings(log)) is status


def test_a_fenced_pending_is_still_in_doubt() -> None:
    """The fold forgets the pending when another run of the agent raises the fence; an executor must not."""
    log = ops([("pending", 1)]) + ops([("pending", 2)], run="other")
    assert fold(log).intent("ada", "r") is None
    seen = {slot: record for slot, record in sightings(log).items() if slot.key == "id:r"}
    assert status_of(None, seen) is Status.IN_DOUBT
