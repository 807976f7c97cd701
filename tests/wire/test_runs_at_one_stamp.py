"""Intents with equal times compete by the ids of their devices, that of a device that is new here too."""

import pytest

from tests.fixtures.devices import NewDevice
from tests.wire.answers import read


@pytest.mark.parametrize("status", ["pending", "failed"])
@pytest.mark.parametrize("first", ["a", "b"])
async def test_the_newest_intent_of_a_run_is_the_one_of_the_greater_device(
    device: NewDevice, scope: str, first: str, status: str
) -> None:
    devices = {name: device(name) for name in "ab"}
    for each in devices.values():
        each.intend("r", status)
    await devices.pop(first).push()
    (last,) = devices.values()
    await last.push()
    params = {"agent": "ada", "run": "r"}
    answer = read(await last.client.get(f"/v1/scopes/{scope}/committed-run", params=params))
    assert answer["intent"]["hlc"]["device_id"] == "b"
