"""Samples of how agents answered; a replay folds them in (hlc, op_id) order."""

from foldpoint.surfaces.surface import Surface, Tier

SURFACE = Surface("routing", 1, Tier.GROW_ONLY, event_stream=True)
