"""Who may do what in a scope (server.md §9). Nothing is open by default."""

from dataclasses import dataclass
from enum import Enum, auto
from hashlib import sha256
from hmac import compare_digest
from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncConnection

from app.problems import Problem
from app.services.reading.cursors import Cursors
from app.sql.access import Grant, KeyState, look_up, standing
from app.sql.scopes import ScopeNameTaken, ensure_scope
from app.sql.transactions import Driver
from foldpoint.admission import Mode
from foldpoint.relay import Chain
from foldpoint.slug import slug


class Right(Enum):
    """What a call needs. SYNC changes a device's chain or roster entry, WRITE a hosted chain, KEYS those of a
    sealed scope."""

    READ = auto()
    SYNC = auto()
    LEASE = auto()
    WRITE = auto()
    KEYS = auto()
    ADMIN = auto()


#: Characters of a scope's name; its slug is indexed.
LONGEST_SCOPE = 512

RIGHTS: dict[str, frozenset[Right]] = {
    "admin": frozenset(Right),
    "device": frozenset((Right.READ, Right.SYNC, Right.LEASE, Right.WRITE, Right.KEYS)),
    "executor": frozenset((Right.READ, Right.LEASE, Right.WRITE)),
    "reader": frozenset((Right.READ,)),
}


@dataclass(slots=True)
class Caller:
    """A bearer token, as its hash; `root` is the admin token of the settings, which no table holds.

    `epoch` is the server epoch as the last transaction that checked the token saw it.
    """

    token_hash: bytes
    root: bool = False
    epoch: str | None = None

    @classmethod
    def of(cls, token: str, admin_token: str | None) -> "Caller":
        digest = sha256(token.encode()).digest()
        root = admin_token is not None and compare_digest(digest, sha256(admin_token.encode()).digest())
        return cls(digest, root)


class Reach(NamedTuple):
    """A scope that a caller may use. `scope` is None for an admin in a scope that does not exist yet."""

    scope: int | None
    #: The server epoch, which every cursor carries.
    epoch: str
    #: The raw id of the device that the token is bound to.
    bound: str | None
    mode: Mode | None = None
    key_state: KeyState | None = None
    key_generation: int = 0
    closed_intents: int = 0

    @property
    def existing(self) -> int:
        """The scope's number. Raises not_found: an admin's read creates nothing."""
        if self.scope is None:
            raise Problem("not_found", "there is no such scope")
        return self.scope

    @property
    def cursors(self) -> Cursors:
        return Cursors(self.epoch, self.existing)

    def may_name(self, device: str) -> None:
        """Raises forbidden if the token is bound to another device; a slug or a raw id names it."""
        if self.bound is not None and device not in (self.bound, slug(self.bound)):
            raise Problem("forbidden", "this token is bound to another device")

    def may_write(self, chain: Chain) -> None:
        """Raises forbidden if the token is bound to another device than the chain's: names can share a slug."""
        if self.bound is not None and chain.device_id not in (None, self.bound):
            raise Problem("forbidden", "this token is bound to another device")


def require(caller: Caller, grant: Grant, name: str, right: Right) -> Reach:
    """What the caller may use. Raises unauthorized, or forbidden for a scope that is not its own or does not exist."""
    caller.epoch = grant.epoch
    role = "admin" if caller.root else grant.role
    if role is None:
        raise revoked()
    taken = name != slug(name) and grant.name is not None and grant.name != name.encode()
    if role != "admin" and (grant.scope is None or grant.reach != grant.scope or taken):
        raise Problem("forbidden", "this token may not use this scope")
    if taken:
        raise misnamed()
    if right not in RIGHTS[role]:
        raise Problem("forbidden", f"a token of role {role} may not do this")
    bound = grant.bound.decode() if grant.bound is not None else None
    if right is Right.KEYS and bound is not None:
        raise Problem("forbidden", "a token of one device may not do this, the owner's or an admin's may")
    keys = grant.key_state, grant.key_generation
    return Reach(grant.scope, grant.epoch, bound, grant.mode, *keys, grant.closed_intents)


async def reach(connection: AsyncConnection, caller: Caller, name: str, right: Right) -> Reach:
    """Check a caller in the transaction of its work. A scope is named by its raw name or its slug."""
    return require(caller, await look_up(connection, caller.token_hash, slug(name)), name, right)


async def reach_or_create(connection: AsyncConnection, caller: Caller, name: str, right: Right) -> Reach:
    """As `reach`, for writes: an admin's first write makes the scope, and the first raw name binds to it."""
    grant = await look_up(connection, caller.token_hash, slug(name))
    found = require(caller, grant, name, right)
    if found.scope is not None and not unbound(grant, name):
        return found
    if len(name) > LONGEST_SCOPE:
        raise Problem("invalid_request", f"a scope's name may have {LONGEST_SCOPE} characters", {"path": "path.scope"})
    try:
        return found._replace(scope=await ensure_scope(connection, name))
    except ScopeNameTaken as error:
        raise misnamed() from error


def misnamed() -> Problem:
    return Problem("not_found", "there is no such scope; another name has its slug")


def unbound(grant: Grant, name: str) -> bool:
    """Whether a raw name is given to a scope that has none yet."""
    return grant.name is None and name != slug(name)


async def known(connection: AsyncConnection, caller: Caller) -> None:
    """Raises unauthorized unless the token is somebody's."""
    grant = await look_up(connection, caller.token_hash, "")
    caller.epoch = grant.epoch
    if not caller.root and grant.role is None:
        raise revoked()


async def still_known(pg: Driver, caller: Caller) -> None:
    """Raises unauthorized unless the token is somebody's, or if it was revoked since the work for its caller began."""
    if not caller.root and not await standing(pg, [caller.token_hash]):
        raise revoked()


def revoked() -> Problem:
    return Problem("unauthorized", "the token is unknown or revoked")
