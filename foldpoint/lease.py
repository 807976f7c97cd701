"""The lease register of one agent (car-sync.md §13.1). Times are readings of one clock, in ms."""

from dataclasses import dataclass, replace

from foldpoint.canonical import U64_MAX, Json


@dataclass(frozen=True, slots=True)
class Lease:
    """Who may act for an agent. Authority is the epoch; the expiry only says when it may be stolen."""

    agent_id: str
    holder: str
    epoch: int
    expires_at_ms: int

    def to_json(self) -> dict[str, Json]:
        return {
            "agent_id": self.agent_id,
            "holder": self.holder,
            "epoch": self.epoch,
            "expires_at_ms": self.expires_at_ms,
        }


@dataclass(frozen=True, slots=True)
class Held:
    """Someone, perhaps the caller, holds an unexpired lease."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class Lost:
    """The caller does not hold the lease at the epoch it claims; 0 if it was never held."""

    agent_id: str
    claimed_epoch: int
    current_epoch: int


@dataclass(frozen=True, slots=True)
class Register:
    """The epoch never decreases and is kept across release; `holder` is None when nobody holds it."""

    agent_id: str
    epoch: int = 0
    holder: str | None = None
    expires_at_ms: int = 0

    @property
    def current(self) -> Lease | None:
        """The recorded lease, an expired one too."""
        return None if self.holder is None else Lease(self.agent_id, self.holder, self.epoch, self.expires_at_ms)

    def acquire(self, device: str, ttl_ms: int, now_ms: int, floor: int = 0) -> "Register | Held":
        """Grant the next epoch, above `floor`, unless an unexpired lease is there, the caller's own too."""
        if (lease := self.current) and now_ms < lease.expires_at_ms:
            return Held(lease)
        return Register(self.agent_id, max(self.epoch, floor) + 1, device, min(now_ms + ttl_ms, U64_MAX))

    def renew(self, device: str, epoch: int, ttl_ms: int, now_ms: int) -> "Register | Lost":
        """Move the expiry, even past it if nobody stole the lease; it may also shorten."""
        if not self._is(device, epoch):
            return Lost(self.agent_id, epoch, self.epoch)
        return replace(self, expires_at_ms=min(now_ms + ttl_ms, U64_MAX))

    def release(self, device: str, epoch: int) -> "Register | Lost":
        if not self._is(device, epoch):
            return Lost(self.agent_id, epoch, self.epoch)
        return replace(self, holder=None)

    def _is(self, device: str, epoch: int) -> bool:
        return self.holder == device and self.epoch == epoch
