"""The table of surfaces (car-sync.md §3.2). A surface is one small file and one entry here."""

from foldpoint.canonical import Json, Unreadable
from foldpoint.surfaces import (
    conversation,
    declagent,
    intent,
    knowledge,
    registry,
    routing,
    run,
    skill,
    trajectory,
)
from foldpoint.surfaces.surface import Surface, Tier

SURFACES: tuple[Surface, ...] = (
    routing.SURFACE,
    declagent.SURFACE,
    conversation.SURFACE,
    knowledge.SURFACE,
    skill.SURFACE,
    registry.SURFACE,
    trajectory.SURFACE,
    run.SURFACE,
    intent.SURFACE,
)

BY_NAME = {surface.name: surface for surface in SURFACES}
BY_NUMBER = {surface.number: surface for surface in SURFACES}
if len(BY_NAME) != len(SURFACES) or len(BY_NUMBER) != len(SURFACES):
    raise ImportError("two surfaces share a name or a number")

_PREFIX = registry.SURFACE.name + ":"
#: The tags that are a surface's name.
PLAIN_TAGS = {surface.name: surface for surface in SURFACES if surface is not registry.SURFACE}


def surface_of(tag: str) -> Surface:
    """The surface a tag belongs to. Raises KeyError for a tag that no op can carry."""
    found = PLAIN_TAGS.get(tag)
    if found is not None:
        return found
    if tag.startswith(_PREFIX):
        return registry.SURFACE
    raise KeyError(tag)


def kind_of(tag: str) -> str:
    """The kind in a registry tag, empty for every other surface."""
    return tag[len(_PREFIX) :] if tag.startswith(_PREFIX) else ""


def tag_of(surface: Surface, kind: str) -> str:
    return _PREFIX + kind if surface is registry.SURFACE else surface.name


def read_surface(value: Json) -> str:
    """The tag of a surface's JSON form. Raises Unreadable (§1.11, §3.2)."""
    if isinstance(value, dict) and len(value) == 1:
        ((name, inner),) = value.items()
        if name in PLAIN_TAGS and inner is None:
            return name
        if name == registry.SURFACE.name:
            return _PREFIX + registry.read_kind(inner)
    if isinstance(value, str) and value in PLAIN_TAGS:
        return value
    raise Unreadable("unknown surface", "surface")


def surface_json(tag: str) -> Json:
    return {"registry": {"kind": kind_of(tag)}} if tag.startswith(_PREFIX) else tag


__all__ = [
    "BY_NAME",
    "BY_NUMBER",
    "PLAIN_TAGS",
    "SURFACES",
    "Surface",
    "Tier",
    "kind_of",
    "read_surface",
    "surface_json",
    "surface_of",
    "tag_of",
]
