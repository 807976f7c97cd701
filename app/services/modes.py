"""The mode of a scope, plain or sealed: its first op fixes it, and an admin may while it is empty (server.md §9)."""

from app.problems import Problem
from app.sql import scope_keys, scopes
from app.sql.transactions import Driver
from foldpoint.admission import Mode
from foldpoint.canonical import Json, Unreadable


def read_mode(value: Json) -> Mode:
    """Read `{"mode": …}`. Raises Unreadable."""
    match value:
        case {"mode": "plain"}:
            return "plain"
        case {"mode": "sealed"}:
            return "sealed"
    raise Unreadable("expected plain or sealed", "mode")


async def set_mode(pg: Driver, scope: int, mode: Mode) -> None:
    """Raises plain_scope or sealed_scope for a scope that has ops, or keys, of the other mode."""
    await scopes.hold(pg, scope)
    known = await scope_keys.held(pg, scope)
    if known.mode == mode:
        return
    if known.ever_used:
        raise Problem("plain_scope" if known.mode == "plain" else "sealed_scope", f"this scope is {known.mode}")
    if known.stored is not None:
        raise Problem("sealed_scope", "the server holds keys of this scope: lock it first")
    await scope_keys.set_mode(pg, scope, mode)
