"""Registries by kind, last writer wins; a deletion is whatever payload the writers agree on."""

from foldpoint.canonical import Json, Unreadable
from foldpoint.surfaces.surface import Surface, Tier

SURFACE = Surface("registry", 6, Tier.REGISTRY)


def read_kind(inner: Json) -> str:
    """The kind of `{"registry": {"kind": …}}`; extra keys beside it are ignored."""
    if isinstance(inner, dict) and isinstance(kind := inner.get("kind"), str):
        return kind
    raise Unreadable("a registry needs a kind", "surface.registry.kind")
