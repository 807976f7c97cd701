"""Every vector is run by a test or listed with the reason why not."""

from importlib import import_module
from pathlib import Path

from tests.fixtures.vectors import DEVIATIONS, METADATA, NOT_TESTED, ROOT, USED, section, vector_file

for _module in Path(__file__).parent.glob("test_vectors_*.py"):
    import_module(f"tests.core.{_module.stem}")


def all_places() -> set[str]:
    """Every file, section, and part of a section that is an object, as a place."""
    places = set()
    for file in ROOT.glob("*.json"):
        places.add(file.name)
        for key, value in vector_file(file.name).items():
            if key not in METADATA:
                places.add(f"{file.name}/{key}")
                places |= {f"{file.name}/{key}/{part}" for part in value} if isinstance(value, dict) else set()
    return places


def test_every_section_is_tested_or_listed() -> None:
    places = all_places()
    wholes = {place for place in places if any(part.startswith(place + "/") for part in places)}
    known = USED | NOT_TESTED.keys()
    assert {
        place for place in places - wholes if not any(place == name or place.startswith(name + "/") for name in known)
    } == set()


def test_only_what_exists_and_is_not_tested_is_listed() -> None:
    assert NOT_TESTED.keys() <= all_places()
    assert not NOT_TESTED.keys() & USED


def test_only_existing_cases_deviate() -> None:
    for place, name in DEVIATIONS:
        assert [case["name"] for case in section(place)].count(name) == 1, (place, name)
