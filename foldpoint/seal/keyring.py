"""The keys that the owner of a sealed scope gave, and which of them opens what (server.md §9)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from foldpoint.canonical import U64_MAX, Json, Unreadable, canonical, read_json
from foldpoint.seal.box import KEY_BYTES, read_hex
from foldpoint.seal.failure import Reason, SealError
from foldpoint.seal.keys import audience_key, audience_of, org_audience, passphrase_master
from foldpoint.seal.sealed import AudienceKey

_FORMAT = "foldpoint.keyring/1"
_EPOCH = re.compile(r"0|[1-9][0-9]{0,19}")

#: The key of one audience, or an org's keys by epoch.
Held = bytes | Mapping[int, bytes]


@dataclass(frozen=True)
class Keyring:
    """Keys by audience, and a master from which every audience that is not named has its key.

    Envelopes of an org with keys by epoch need a `kid`, which names the one key that may open them; all others are
    opened by their audience's one key, whatever `kid` they carry.
    """

    master: bytes | None = field(default=None, repr=False)
    audiences: Mapping[str, Held] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for audience, held in self.audiences.items():
            if audience != "personal" and not audience.startswith("org:"):
                raise SealError(Reason.MALFORMED, "an audience is personal or org:<org>")
            if isinstance(held, Mapping):
                _check_epochs(audience, held)
        for key in self._all_keys():
            if len(key) != KEY_BYTES:
                raise SealError(Reason.MALFORMED, f"a key has {KEY_BYTES} bytes")

    @classmethod
    def from_passphrase(cls, passphrase: str, user: str) -> Self:
        """As slow as `passphrase_master`."""
        return cls(passphrase_master(passphrase, user))

    @classmethod
    def from_org_keys(cls, org: str, org_keys: Mapping[int, bytes]) -> Self:
        """What an org shares, by epoch, as its wraps hold it; without one, no key of the org."""
        audience = org_audience(org)
        derived = {epoch: audience_key(key, audience) for epoch, key in org_keys.items()}
        return cls(audiences={audience: derived} if derived else {})

    @classmethod
    def read_audiences(cls, value: Json) -> Self:
        """Read audience → hex, or for an org epoch → hex (server.md §11). Raises SealError."""
        if not isinstance(value, dict) or not value:
            raise SealError(Reason.MALFORMED, "expected an object of keys by audience")
        return cls(audiences={audience: _read_held(held) for audience, held in value.items()})

    @classmethod
    def read(cls, text: bytes) -> Self:
        """Read what `text` gives. Raises SealError."""
        try:
            value = read_json(text)
        except Unreadable:
            raise SealError(Reason.UNREADABLE, "a keyring must be JSON") from None
        if not isinstance(value, dict) or value.get("format") != _FORMAT:
            raise SealError(Reason.UNREADABLE, f"not a keyring of the format {_FORMAT}")
        master, audiences = value.get("master"), value.get("audiences")
        keyring = cls.read_audiences(audiences) if audiences != {} else cls()
        return keyring if master is None else cls(_read_key(master), keyring.audiences)

    def text(self) -> bytes:
        """The one text of these keys, to be stored encrypted: equal keyrings have equal texts."""
        master = None if self.master is None else self.master.hex()
        audiences: dict[str, Json] = {
            audience: held.hex() if isinstance(held, bytes) else {str(epoch): held[epoch].hex() for epoch in held}
            for audience, held in self.audiences.items()
        }
        return canonical({"format": _FORMAT, "master": master, "audiences": audiences})

    def joined(self, later: Self) -> Self:
        """These keys and later ones, which replace those of the same audience and epoch."""
        replaced = {audience: _both(self.audiences.get(audience), held) for audience, held in later.audiences.items()}
        audiences = {**self.audiences, **replaced}
        return type(self)(self.master if later.master is None else later.master, audiences)

    def key_for(self, scope: str, kid: int | None) -> AudienceKey:
        """The key that may open an envelope with this `kid` in an op of this scope (its tag). Raises SealError."""
        audience = audience_of(scope)
        held = self.audiences.get(audience)
        if not isinstance(held, Mapping):
            return AudienceKey(self._one_key(audience))
        if kid is None:
            raise SealError(Reason.MALFORMED, "an envelope of this org needs a kid")
        if kid not in held:
            raise SealError(Reason.NO_KEY, f"no key of epoch {kid} is held")
        return AudienceKey.of_org(held[kid], audience, kid)

    def newest_key(self, scope: str) -> AudienceKey:
        """The key to seal with in an op of this scope (its tag). Raises SealError."""
        held = self.audiences.get(audience_of(scope))
        return self.key_for(scope, max(held) if isinstance(held, Mapping) else None)

    def _one_key(self, audience: str) -> bytes:
        held = self.audiences.get(audience)
        if isinstance(held, bytes):
            return held
        if self.master is None:
            raise SealError(Reason.NO_KEY, "no key of this audience is held")
        return audience_key(self.master, audience)

    def _all_keys(self) -> list[bytes]:
        keys = [] if self.master is None else [self.master]
        for held in self.audiences.values():
            keys += held.values() if isinstance(held, Mapping) else [held]
        return keys


def _check_epochs(audience: str, held: Mapping[int, bytes]) -> None:
    if audience == "personal":
        raise SealError(Reason.MALFORMED, "the personal audience has no epochs")
    if not held or not all(0 <= epoch <= U64_MAX for epoch in held):
        raise SealError(Reason.MALFORMED, "an org needs a key of at least one epoch in u64")


def _both(known: Held | None, later: Held) -> Held:
    if isinstance(known, Mapping) and isinstance(later, Mapping):
        return {**known, **later}
    return later


def _read_held(value: Json) -> Held:
    if not isinstance(value, dict):
        return _read_key(value)
    if not all(map(_EPOCH.fullmatch, value)):
        raise SealError(Reason.MALFORMED, "an epoch is a decimal number")
    return {int(epoch): _read_key(key) for epoch, key in value.items()}


def _read_key(value: Json) -> bytes:
    if not isinstance(value, str):
        raise SealError(Reason.MALFORMED, "a key is a string of hex")
    return read_hex(value, "a key", KEY_BYTES)
