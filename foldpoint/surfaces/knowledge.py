"""Facts, first writer wins by stamp."""

from foldpoint.surfaces.surface import Surface, Tier

SURFACE = Surface("knowledge", 4, Tier.GROW_ONLY)
