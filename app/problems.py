"""What a client is told when something is refused: stable codes, one body shape (server.md §12)."""

from collections.abc import Mapping
from typing import Any

from foldpoint.relay import Refusal

#: Every code and the status it answers with.
CODES: dict[str, int] = {
    "chain_fork": 409,
    "gap": 409,
    "chain_broken": 422,
    "foreign_ops": 403,
    "reserved_device": 403,
    "frontier_truncated": 409,
    "unreadable_op": 422,
    "invalid_request": 422,
    "clock_skew": 422,
    "checkpoint_invalid": 422,
    "checkpoint_unverified": 422,
    "checkpoint_state_mismatch": 422,
    "plain_scope": 409,
    "sealed_scope": 409,
    "wrong_key": 422,
    "lease_held": 409,
    "lease_lost": 409,
    "stale_epoch": 409,
    "seal_mismatch": 409,
    "epoch_exhausted": 409,
    "invalid_cursor": 400,
    "cursor_gone": 410,
    "server_restored": 410,
    "frontier_collected": 410,
    "too_large": 413,
    "too_many_ops": 413,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "rate_limited": 429,
    "unavailable": 503,
    "internal": 500,
}

GO_ON = "Fetch the named checkpoint, if one is named, then go on from the cursor given here; null is the start."

#: What a client can do about a refusal that its own data does not explain.
ADVICE: dict[str, str] = {
    "chain_fork": "Another device writes under this device id. Take a new id and push your own later ops under it.",
    "gap": "Push from the expected seq on.",
    "chain_broken": "Push the op as its device authored it; a device that lost its log takes a new id.",
    "foreign_ops": "Push each device's ops under its own id.",
    "unreadable_op": "The ops before it are stored; this one must be authored again, and its successors with it.",
    "plain_scope": "Push sealed ops to a scope of their own.",
    "sealed_scope": "Its owner can unlock it (PUT /v1/scopes/{scope}/keys); else its ops are opened on the devices.",
    "wrong_key": "Give the passphrase with its user as the devices have them, or the keys of this scope.",
    "checkpoint_invalid": "Make the checkpoint again from the device's ops.",
    "checkpoint_unverified": "Pull, and make the checkpoint at a frontier that the server holds.",
    "checkpoint_state_mismatch": "Pull everything, fold again, and compare the state's hash with the server's.",
    "lease_held": "Wait until it expires or is released; its holder renews it.",
    "lease_lost": "Stop acting for the agent, and acquire again.",
    "seal_mismatch": "Start no effect. Read the run again, and go on from what has won there.",
    "epoch_exhausted": "An admin sees the claim at /v1/scopes/{scope}/leases/claim?agent= and lets it go by DELETE.",
    "clock_skew": "Set the device's clock, and author the op again.",
    "frontier_truncated": "Bootstrap from the latest checkpoint, then pull from its frontier.",
    "cursor_gone": GO_ON,
    "server_restored": GO_ON,
    "frontier_collected": "Ask for one of these frontiers.",
    "too_large": "Send less at once.",
    "too_many_ops": "Send fewer ops in one request.",
    "unavailable": "Try again.",
}

RETRY_AFTER_S = 1
UNCACHED = frozenset(("cursor_gone", "server_restored", "frontier_collected"))


class BrokenOff(RuntimeError):
    """An answer that was begun cannot be ended: its connection breaks, so that nobody takes it for whole."""


class Problem(Exception):
    """A request that cannot be answered as asked. `facts` go into the body beside the code."""

    def __init__(self, code: str, detail: str, facts: Mapping[str, Any] | None = None, *, status: int = 0) -> None:
        super().__init__(detail)
        self.code, self.detail = code, detail
        self.facts = facts or {}
        self.status = status or CODES[code]

    @classmethod
    def of(cls, refusal: Refusal, **facts: Any) -> "Problem":
        """The problem of a refused op; `facts` say what became of the rest of the request."""
        return cls(refusal.code, refusal.detail, {**refusal.facts, **facts})

    def beside(self, **facts: Any) -> "Problem":
        """The same problem with more facts."""
        return Problem(self.code, self.detail, {**self.facts, **facts}, status=self.status)

    def body(self) -> dict[str, Any]:
        """The application/problem+json document."""
        advice = {"advice": ADVICE[self.code]} if self.code in ADVICE else {}
        return {
            "type": f"about:blank#{self.code}",
            "title": self.code.replace("_", " "),
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
            **advice,
            **self.facts,
        }

    def headers(self) -> dict[str, str]:
        headers = {}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        if self.code in ("rate_limited", "unavailable"):
            headers["Retry-After"] = str(RETRY_AFTER_S)
        if self.status == 416:
            headers["Content-Range"] = f"bytes */{self.facts['size']}"
        if self.code in UNCACHED:
            headers["Cache-Control"] = "no-store"
        return headers
