"""The keyrings of sealed scopes, as far as this process can read them (server.md §9)."""

from dataclasses import dataclass, field

from app.key_file import KeyFile
from app.problems import Problem
from app.services.access import Reach
from app.sql import scope_keys
from app.sql.scope_keys import Stored
from app.sql.transactions import Driver
from foldpoint.seal import Keyring, SealError


@dataclass(slots=True)
class Vault:
    """`file` is None in a process without a key file: it reads no keyring, and takes none."""

    file: KeyFile | None = None
    #: By scope, of its last known generation of keys.
    _held: dict[int, tuple[int, Keyring]] = field(default_factory=dict, repr=False)

    def seal(self, scope: int, keyring: Keyring) -> Stored:
        """Raises sealed_scope without a key file."""
        if self.file is None:
            raise Problem(
                "sealed_scope",
                "this server process has no key file to keep keys under: FOLDPOINT_KEY_FILE names none",
                status=503,
            )
        return Stored(self.file.key_id, self.file.encrypt(keyring.text(), scope))

    def read(self, scope: int, stored: Stored) -> Keyring:
        """Raises sealed_scope, as 503, without the key file that it was stored under."""
        if self.file is None or self.file.key_id != stored.key_id:
            raise no_key_file()
        try:
            return Keyring.read(self.file.decrypt(stored.sealed, scope))
        except SealError:
            raise no_key_file() from None

    async def keyring(self, pg: Driver, scope: int, generation: int) -> Keyring:
        """The keys of this generation, which the scope has now. Raises sealed_scope, as 503, without its key file."""
        held = self._held.get(scope)
        if held is not None and held[0] == generation:
            return held[1]
        self.forget(scope)
        stored = await scope_keys.stored(pg, scope)
        assert stored is not None
        keyring = self.read(scope, stored)
        self._held[scope] = generation, keyring
        return keyring

    def forget(self, scope: int) -> None:
        """Let go of the keys of a scope that is locked."""
        self._held.pop(scope, None)

    async def forget_changed(self, pg: Driver) -> None:
        """Let go of the keys of scopes that other processes locked, or gave other keys: nobody may ask for one here."""
        if self._held:
            now = await scope_keys.generations(pg, list(self._held))
            for scope in [scope for scope, (generation, _) in self._held.items() if now.get(scope) != generation]:
                self.forget(scope)

    async def readable(self, pg: Driver, reach: Reach) -> Keyring | None:
        """The keys under which a scope's answers are folded; None for a plain scope, and for a locked one.

        Raises sealed_scope, as 503, until every op is folded, and without the key file.
        """
        if reach.scope is None:
            return None
        if reach.key_state is None:
            self.forget(reach.scope)
            return None
        if reach.key_state == "unlocking":
            raise unlocking()
        return await self.keyring(pg, reach.scope, reach.key_generation)


def unlocking() -> Problem:
    return Problem("sealed_scope", "this scope is being unlocked: some of its ops are not folded yet", status=503)


def no_key_file() -> Problem:
    return Problem(
        "sealed_scope", "this server process has not the key file that the scope's keys are kept under", status=503
    )
