"""Every vector of run ledgers is run by a test or listed with the reason why not."""

from importlib import import_module
from pathlib import Path

from tests.fixtures.run_ledger_vectors import DEVIATIONS, ROOT, USED, cases

for _module in Path(__file__).parent.glob("test_vectors_run_ledger*.py"):
    import_module(f"tests.core.{_module.stem}")


def test_every_file_is_run() -> None:
    assert {file.name for file in ROOT.glob("*.json")} == USED


def test_only_existing_cases_deviate() -> None:
    for file, name in DEVIATIONS:
        assert [case["name"] for case in cases(file)].count(name) == 1, (file, name)
