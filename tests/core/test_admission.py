"""What the server asks of an op beyond the crate's rules (server.md §3, §7, §9)."""

import pytest

from foldpoint.admission import Bounds, Mode, read_admissible
from foldpoint.canonical import Json, Unreadable
from foldpoint.hlc import Hlc
from foldpoint.op import Op, make_op

I64_MAX = 2**63 - 1
SEALED: Json = {"car_enc": "chacha20poly1305", "nonce": "00", "ct": "00"}


def op(*, device: str = "d", seq: int = 0, wall_ms: int = 1, payload: Json = None) -> Op:
    return make_op(device, seq, None, Hlc(wall_ms, 0, device), "personal", "knowledge", payload)


def nested(depth: int) -> Json:
    value: Json = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "admitted",
    [
        op(seq=I64_MAX),
        op(wall_ms=I64_MAX),
        op(device="é" * 256),
        op(payload=nested(120)),
        op(device=""),
        op(device="\0"),
    ],
)
def test_what_can_be_stored_and_pulled_back(admitted: Op) -> None:
    assert read_admissible(admitted.text()).op == admitted


@pytest.mark.parametrize(
    ("refused", "path"),
    [
        (op(seq=I64_MAX + 1), "seq"),
        (op(wall_ms=I64_MAX + 1), "hlc.wall_ms"),
        (op(device="é" * 256 + "x"), "device_id"),
        (op(payload=nested(121)), "payload"),
    ],
)
def test_what_cannot_is_unreadable_and_named(refused: Op, path: str) -> None:
    with pytest.raises(Unreadable) as error:
        read_admissible(refused.text())
    assert error.value.path == path


@pytest.mark.parametrize(
    ("payload", "mode", "code"),
    [
        (None, None, None),
        (SEALED, None, None),
        (None, "plain", None),
        (SEALED, "sealed", None),
        (SEALED, "plain", "plain_scope"),
        (None, "sealed", "sealed_scope"),
    ],
)
def test_a_scope_is_plain_or_sealed(payload: Json, mode: Mode | None, code: str | None) -> None:
    refusal = Bounds.of(mode, now_ms=0, max_skew_ms=0, highest_wall_ms=0).refuse(op(payload=payload))
    assert (refusal and refusal.code) == code


@pytest.mark.parametrize(
    ("wall_ms", "highest", "skew", "admitted"),
    [
        (1_500, 0, 500, True),
        (1_501, 0, 500, False),
        (1_501, 1_501, 500, True),
        (1_502, 1_501, 500, False),
        (0, 1_501, 500, True),
        (I64_MAX, 0, 0, True),
    ],
)
def test_clock_bound(wall_ms: int, highest: int, skew: int, *, admitted: bool) -> None:
    bounds = Bounds.of(None, now_ms=1_000, max_skew_ms=skew, highest_wall_ms=highest)
    refusal = bounds.refuse(op(wall_ms=wall_ms))
    assert (refusal is None) is admitted
    if refusal:
        assert refusal.code == "clock_skew"
        assert {name: refusal.facts[name] for name in ("op_wall_ms", "server_ms", "bound_ms")} == {
            "op_wall_ms": wall_ms,
            "server_ms": 1_000,
            "bound_ms": max(1_500, highest),
        }
