"""R02: nothing is ordered, delivered or collected by `now()` or by when a row was made."""

import re
from pathlib import Path

import pytest

APP = Path(__file__).parents[2] / "app"
#: Where a time of making or revoking is only noted.
NOTED = {APP / "sql" / "tables", APP / "sql" / "tokens.py"}
STATEMENTS = sorted(path for path in APP.rglob("*.py") if NOTED.isdisjoint((path, *path.parents)))
#: What is a clock of arrival in a statement; the database clock of leases, contacts and bounds is another.
ARRIVAL = re.compile(
    r"(?<![a-z_])now\(\)|current_timestamp|transaction_timestamp|(order by|where|and)[^\"]*created_at", re.IGNORECASE
)


@pytest.mark.parametrize("path", STATEMENTS, ids=lambda path: str(path.relative_to(APP)))
def test_R02_no_statement_orders_or_chooses_by_arrival(path: Path) -> None:
    assert not ARRIVAL.search(path.read_text())
