"""Skills, first writer wins by stamp."""

from foldpoint.surfaces.surface import Surface, Tier

SURFACE = Surface("skill", 5, Tier.GROW_ONLY)
