"""Fixtures live in tests/fixtures, one file per thing they provide."""

pytest_plugins = [
    "tests.fixtures.command",
    "tests.fixtures.database",
    "tests.fixtures.devices",
    "tests.fixtures.server",
    "tests.fixtures.projections",
]
