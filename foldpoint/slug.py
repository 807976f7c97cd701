"""Names as they travel in a path of the device wire (car-sync.md §12.3)."""

import re

_OUTSIDE = re.compile(r"[^A-Za-z0-9_-]")


def slug(raw: str) -> str:
    """Every character outside `[A-Za-z0-9_-]` becomes `_`; different names can share a slug."""
    return _OUTSIDE.sub("_", raw)
