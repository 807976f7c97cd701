"""Every case of every journal vector file is run by a test."""

from importlib import import_module
from pathlib import Path

from tests.fixtures.journal_vectors import ROOT, USED, cases

for _module in Path(__file__).parent.glob("test_vectors_journal*.py"):
    import_module(f"tests.core.{_module.stem}")


def test_every_file_is_tested() -> None:
    assert {file.name for file in ROOT.glob("*.json")} == USED


def test_cases_are_as_many_as_the_readme_says_where_it_does() -> None:
    readme = (ROOT / "README.md").read_text()
    for name, count in (("random_small.json", 24), ("random_large.json", 12)):
        assert f"{count} random journals" in readme
        assert len(cases(name)) == count
