"""Trajectories, first writer wins by stamp."""

from foldpoint.surfaces.surface import Surface, Tier

SURFACE = Surface("trajectory", 7, Tier.GROW_ONLY)
