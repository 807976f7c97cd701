"""What the state folds of a sealed op (server.md §6, §9)."""

from contextlib import suppress
from enum import StrEnum
from typing import NamedTuple

import msgspec

from foldpoint.canonical import Json, canonical
from foldpoint.op import Op
from foldpoint.seal.failure import Reason, SealError
from foldpoint.seal.keyring import Keyring
from foldpoint.seal.sealed import Envelope, open_envelope, read_envelope


class Outcome(StrEnum):
    OPENED = "opened"
    #: Closed for want of a key: what is inside may matter to an executor.
    LACKS_KEY = "lacks_key"
    #: Closed under the key that is held: it tells a sealing device of that login nothing either.
    FAILS = "fails"
    #: Not an envelope that a device could read: no record comes of it.
    LEFT_OUT = "left_out"


class Opening(NamedTuple):
    """The payload that the state folds: the opened one, or the closed envelope's own; null if it is left out."""

    outcome: Outcome
    payload: Json

    def folded(self, op: Op) -> Op | None:
        """The op as the state folds it, under its own id; None if it is left out."""
        if self.outcome is Outcome.LEFT_OUT:
            return None
        return msgspec.structs.replace(op, payload=self.payload, payload_text=canonical(self.payload))


def opened_payload(op: Op, keyring: Keyring) -> Opening:
    """What a sealing device that holds these keys folds of this op."""
    try:
        envelope = read_envelope(op.payload)
    except SealError:
        return Opening(Outcome.LEFT_OUT, None)
    try:
        return Opening(Outcome.OPENED, _opened(op.scope, envelope, keyring))
    except SealError as error:
        outcome = Outcome.LACKS_KEY if error.reason is Reason.NO_KEY else Outcome.FAILS
        return Opening(outcome, envelope.to_json())


def _opened(scope: str, envelope: Envelope, keyring: Keyring) -> Json:
    *others, last = keyring.keys_for(scope, envelope.kid)
    for key in others:
        with suppress(SealError):
            return open_envelope(envelope, key)
    try:
        return open_envelope(envelope, last)
    except SealError as error:
        if error.reason is Reason.WRONG_KEY and envelope.kid != last.kid and scope != "personal":
            raise SealError(Reason.NO_KEY, "an org's key of an epoch sealed it, and none is held") from None
        raise
