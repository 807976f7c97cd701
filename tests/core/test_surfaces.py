from hypothesis import given

from foldpoint.surfaces import SURFACES, kind_of, read_surface, surface_json, surface_of, tag_of
from tests.fixtures.ops import THOROUGH, tags


def test_the_numbers_in_storage_never_change() -> None:
    assert {surface.name: surface.number for surface in SURFACES} == {
        "routing": 1,
        "declagent": 2,
        "conversation": 3,
        "knowledge": 4,
        "skill": 5,
        "registry": 6,
        "trajectory": 7,
        "run": 8,
        "intent": 9,
    }


@THOROUGH
@given(tag=tags)
def test_a_tag_survives_json_and_storage(tag: str) -> None:
    assert read_surface(surface_json(tag)) == tag
    assert tag_of(surface_of(tag), kind_of(tag)) == tag
