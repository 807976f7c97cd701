"""Declared agents, last writer wins."""

from foldpoint.surfaces.surface import Surface, Tier

SURFACE = Surface("declagent", 2, Tier.REGISTRY)
