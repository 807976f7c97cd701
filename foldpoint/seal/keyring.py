"""The keys that the owner of a sealed scope gave, and which of them opens what (server.md §9)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

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

    `either` has keys of orgs by epoch of which nothing tells yet whether they are the audience's own or what the
    members share, from which those are derived: both are tried, and nothing is sealed with them.
    """

    master: bytes | None = field(default=None, repr=False)
    audiences: Mapping[str, Held] = field(default_factory=dict, repr=False)
    either: Mapping[str, Mapping[int, bytes]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for audience, held in [*self.audiences.items(), *self.either.items()]:
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
        if not value:
            raise SealError(Reason.MALFORMED, "expected an object of keys by audience")
        return cls(audiences=_read_if_any(value))

    @classmethod
    def read(cls, text: bytes) -> Self:
        """Read what `text` gives. Raises SealError."""
        try:
            value = read_json(text)
        except Unreadable:
            raise SealError(Reason.UNREADABLE, "a keyring must be JSON") from None
        if not isinstance(value, dict) or value.get("format") != _FORMAT:
            raise SealError(Reason.UNREADABLE, f"not a keyring of the format {_FORMAT}")
        master = value.get("master")
        audiences, either = (_read_if_any(value.get(name, {})) for name in ("audiences", "either"))
        return cls(None if master is None else _read_key(master), audiences, _by_epoch(either))

    def text(self) -> bytes:
        """The one text of these keys, to be stored encrypted: equal keyrings have equal texts."""
        master = None if self.master is None else self.master.hex()
        keys = {"audiences": _to_json(self.audiences)}
        if self.either:
            keys["either"] = _to_json(self.either)
        return canonical({"format": _FORMAT, "master": master, **keys})

    def joined(self, later: Self) -> Self:
        """These keys and later ones, which replace those of the same audience and epoch."""
        audiences: dict[str, Held] = dict(self.audiences)
        either: dict[str, Mapping[int, bytes]] = dict(self.either)
        for audience, held in later.audiences.items():
            _replace(audiences, either, audience, held)
        for audience, keys in later.either.items():
            _replace(either, audiences, audience, keys)
        return type(self)(self.master if later.master is None else later.master, audiences, either)

    def keys_for(self, scope: str, kid: int | None) -> list[AudienceKey]:
        """The keys that may open an envelope with this `kid` in an op of this scope (its tag): one, unless it is not
        known what the one given is. Raises SealError."""
        audience = audience_of(scope)
        held, unclear = self.audiences.get(audience), self.either.get(audience, {})
        if not isinstance(held, Mapping) and not unclear:
            return [AudienceKey(self._one_key(audience))]
        if kid is None:
            raise SealError(Reason.MALFORMED, "an envelope of this org needs a kid")
        if isinstance(held, Mapping) and kid in held:
            return [AudienceKey.of_org(held[kid], audience, kid)]
        if kid not in unclear:
            raise SealError(Reason.NO_KEY, f"no key of epoch {kid} is held")
        meant = unclear[kid], audience_key(unclear[kid], audience)
        return [AudienceKey.of_org(key, audience, kid) for key in meant]

    def newest_key(self, scope: str) -> AudienceKey:
        """The key to seal with in an op of this scope (its tag). Raises SealError."""
        audience = audience_of(scope)
        held = self.audiences.get(audience)
        epochs = [*(held if isinstance(held, Mapping) else ()), *self.either.get(audience, ())]
        key, *others = self.keys_for(scope, max(epochs, default=None))
        if others:
            raise SealError(Reason.NO_KEY, "give the org's keys again once a device has sealed an op with them")
        return key

    def _one_key(self, audience: str) -> bytes:
        held = self.audiences.get(audience)
        if isinstance(held, bytes):
            return held
        if self.master is None:
            raise SealError(Reason.NO_KEY, "no key of this audience is held")
        return audience_key(self.master, audience)

    def _all_keys(self) -> list[bytes]:
        keys = [] if self.master is None else [self.master]
        for held in [*self.audiences.values(), *self.either.values()]:
            keys += held.values() if isinstance(held, Mapping) else [held]
        return keys


def _check_epochs(audience: str, held: Mapping[int, bytes]) -> None:
    if audience == "personal":
        raise SealError(Reason.MALFORMED, "the personal audience has no epochs")
    if not held or not all(0 <= epoch <= U64_MAX for epoch in held):
        raise SealError(Reason.MALFORMED, "an org needs a key of at least one epoch in u64")


def _replace(own: dict[str, Any], other: dict[str, Any], audience: str, held: Held) -> None:
    """Put keys of an audience in `own`, in place of those of the same epochs there and in `other`."""
    before, beside = own.get(audience), other.pop(audience, None)
    if not isinstance(held, Mapping):
        own[audience] = held
        return
    own[audience] = {**before, **held} if isinstance(before, Mapping) else held
    if isinstance(beside, Mapping) and (kept := {epoch: beside[epoch] for epoch in beside if epoch not in held}):
        other[audience] = kept


def _to_json(audiences: Mapping[str, Held]) -> Json:
    return {
        audience: held.hex() if isinstance(held, bytes) else {str(epoch): held[epoch].hex() for epoch in held}
        for audience, held in audiences.items()
    }


def _read_if_any(value: Json) -> dict[str, Held]:
    if not isinstance(value, dict):
        raise SealError(Reason.MALFORMED, "expected an object of keys by audience")
    return {audience: _read_held(held) for audience, held in value.items()}


def _by_epoch(audiences: Mapping[str, Held]) -> dict[str, Mapping[int, bytes]]:
    found = {audience: held for audience, held in audiences.items() if isinstance(held, Mapping)}
    if len(found) < len(audiences):
        raise SealError(Reason.MALFORMED, "expected keys by epoch")
    return found


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
