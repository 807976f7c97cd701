"""What every storm has: a seed that is printed, and servers that come and go."""

import os
from collections.abc import AsyncIterator, Callable
from random import Random  # noqa: TID251 - seeded: a storm can be run again

import pytest

from tests.fixtures.server import RunningServer
from tests.storms.fleet import Fleet


@pytest.fixture
def dice(request: pytest.FixtureRequest) -> Random:
    """The test's own generator; STORM_SEED gives other storms."""
    seed = f"{os.environ.get('STORM_SEED', '1')}/{request.node.name}"
    print(f"STORM_SEED {seed}")  # noqa: T201 - shown when the test fails
    return Random(seed)


@pytest.fixture
async def fleet(server: RunningServer, second_server: RunningServer) -> AsyncIterator[Fleet]:
    """The session's two server processes, for storms that kill none."""
    async with Fleet(server.database_url) as ships:
        ships.take(server)
        ships.take(second_server)
        yield ships


@pytest.fixture
async def own_fleet(start_server: Callable[..., RunningServer], database_url: str) -> AsyncIterator[Fleet]:
    """No server yet, on a database of the test's own."""
    async with Fleet(database_url, start_server) as ships:
        yield ships
