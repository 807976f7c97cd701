"""Run results, first writer wins by stamp."""

from foldpoint.surfaces.surface import Surface, Tier

SURFACE = Surface("run", 8, Tier.GROW_ONLY)
