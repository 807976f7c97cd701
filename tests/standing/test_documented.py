"""The README names everything that a person must know by name."""

from pathlib import Path

import pytest

from app.problems import CODES
from app.settings import Settings

README = (Path(__file__).parents[2] / "README.md").read_text()


@pytest.mark.parametrize("name", Settings.model_fields)
def test_each_setting_is_in_the_readme(name: str) -> None:
    assert f"`FOLDPOINT_{name.upper()}`" in README


@pytest.mark.parametrize(("code", "status"), CODES.items())
def test_each_code_is_in_the_readme_with_its_status(code: str, status: int) -> None:
    rows = [line for line in README.splitlines() if line.startswith("|") and f"`{code}`" in line]
    assert any(str(status) in row for row in rows)
