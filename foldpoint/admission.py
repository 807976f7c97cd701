"""What the server asks of an op beyond the crate's rules (server.md §3, §7, §9)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec import Raw

from foldpoint.canonical import Unreadable, is_deeper
from foldpoint.envelope import is_envelope
from foldpoint.op import Op
from foldpoint.op_text import OpText, read_emitted, read_op_text
from foldpoint.relay import Refusal

#: A deeper payload could be pushed, but no device could pull it back.
MAX_PAYLOAD_DEPTH = 120
#: seq and wall_ms are kept in signed 64 bits.
I64_MAX = 2**63 - 1
MAX_DEVICE_ID_BYTES = 512
#: Device ids of hosted chains begin so; no device on the wire may use one.
HOSTED_PREFIX = "hosted-"

Mode = Literal["plain", "sealed"]


def read_emitted_admissible(texts: Sequence[bytes | Raw]) -> list[OpText] | None:
    """Read texts that the crate emitted, all of which `read_admissible` takes; None if one of them is not such."""
    read = read_emitted(texts, MAX_PAYLOAD_DEPTH)
    if read is None or any(_is_long(device_id) for device_id in {one.op.device_id for one in read}):
        return None
    return read


def read_admissible(text: bytes) -> OpText:
    """Read one op that can be stored and pulled back. Raises Unreadable."""
    read = read_op_text(text)
    op = read.op
    for name, number in (("seq", op.seq), ("hlc.wall_ms", op.hlc.wall_ms)):
        if number > I64_MAX:
            raise Unreadable(f"{number} is above 2^63-1", name)
    if _is_long(op.device_id):
        raise Unreadable(f"longer than {MAX_DEVICE_ID_BYTES} bytes", "device_id")
    if is_deeper(op.payload_text, MAX_PAYLOAD_DEPTH):
        raise Unreadable(f"more than {MAX_PAYLOAD_DEPTH} nested containers", "payload")
    return read


def _is_long(device_id: str) -> bool:
    return len(device_id.encode()) > MAX_DEVICE_ID_BYTES


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a scope admits now. `mode` is None until its first op; times are in ms of the database clock."""

    mode: Mode | None
    now_ms: int
    #: None when the clock bound is off.
    max_wall_ms: int | None

    @classmethod
    def of(cls, mode: Mode | None, now_ms: int, max_skew_ms: int, highest_wall_ms: int) -> "Bounds":
        """The clock bound is the database clock plus the skew, or what the scope already holds (server.md §7)."""
        return cls(mode, now_ms, max(now_ms + max_skew_ms, highest_wall_ms) if max_skew_ms else None)

    def refuse(self, op: Op) -> Refusal | None:
        """Why an op that continues its chain may still not join the scope."""
        mode = mode_of(op)
        if self.mode is not None and mode != self.mode:
            return _other_mode(op, self.mode)
        if self.max_wall_ms is not None and op.hlc.wall_ms > self.max_wall_ms:
            return Refusal(
                "clock_skew",
                f"op {op.op_id} is stamped {op.hlc.wall_ms} ms; the server's clock reads {self.now_ms} ms, "
                f"and the bound is {self.max_wall_ms} ms",
                {
                    "device_id": op.device_id,
                    "seq": op.seq,
                    "op_wall_ms": op.hlc.wall_ms,
                    "server_ms": self.now_ms,
                    "bound_ms": self.max_wall_ms,
                },
            )
        return None


def mode_of(op: Op) -> Mode:
    """The mode of a scope that this op may begin."""
    return "sealed" if is_envelope(op.payload) else "plain"


def _other_mode(op: Op, mode: Mode) -> Refusal:
    if mode == "plain":
        return Refusal(
            "plain_scope",
            f"op {op.op_id} is sealed, and this scope is plain",
            {"device_id": op.device_id, "seq": op.seq},
        )
    return Refusal(
        "sealed_scope",
        f"op {op.op_id} is not sealed, and this scope is: other devices would drop it",
        {"device_id": op.device_id, "seq": op.seq},
    )
