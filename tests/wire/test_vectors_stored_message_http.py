"""The golden vectors of stored messages through the HTTP API: the gates of hosted calls, and merged sessions."""

from collections.abc import Iterator
from random import Random  # noqa: TID251 - seeded
from typing import Any

import httpx
import pytest

from foldpoint.canonical import Json
from foldpoint.op import Op
from foldpoint.stored_message.checkpoint import decode_checkpoint, restore_checkpoint
from foldpoint.stored_message.message import decode_message, read_message
from foldpoint.stored_message.refusals import Refused
from foldpoint.stored_message.writing import canonical_message
from tests.fixtures.contexts import CONTEXT, ask, write
from tests.fixtures.devices import START_MS, Device, NewDevice
from tests.fixtures.projections import carried
from tests.fixtures.stored_message_vectors import (
    DEVIATIONS,
    WINDOW,
    golden,
    needs_tokenizer,
    text,
    vector_file,
)
from tests.wire.answers import read, refused


@pytest.mark.parametrize("file", ["decode-cases.json", "decode-sweep.json"])
async def test_what_the_decode_gate_refuses_is_refused_at_the_call(
    admin: httpx.AsyncClient, scope: str, file: str
) -> None:
    for n, case in enumerate(vector_file(file)["cases"]):
        op = b'{"op":"put","message_id":"m","pos":0,"message":%b}' % case["input"].encode()
        body = b'{"writer":"web","session":"%d","ops":[%b]}' % (n, op)
        answer = await admin.post(f"/v1/scopes/{scope}/contexts/ops", content=body)
        if not case["ok"] or (file, case["name"]) in DEVIATIONS:
            problem = refused(answer, "invalid_request")
            if case.get("error", {}).get("class") != "syntax":
                assert problem["gate"] == "malformed_envelope", case["name"]
        elif (stored := stored_as(case["input"])) is None:
            assert refused(answer, "invalid_request")["gate"] == "checkpoint_incompatible", case["name"]
        else:
            read(answer)
            (held,) = read(await ask(admin, scope, session=f"{n}"))["messages"]
            assert text(held) == text(stored), case["name"]


def stored_as(message: str) -> Any:
    """The spelling that a message is stored in; None for one that no checkpoint holds."""
    read_as = read_message(message.encode())
    try:
        return None if answers_no_call(read_as) else canonical_message(read_as)
    except Refused:
        return None


def answers_no_call(message: Any) -> bool:
    """Whether it is a result of the call "": the kernel restores it, and finds what it then writes corrupted."""
    return bool(message["body"].get("tool_call_id") == "")


async def test_what_the_assemble_and_restore_gates_refuse_is_refused_at_the_call(
    admin: httpx.AsyncClient, scope: str
) -> None:
    for n, case in enumerate(vector_file("restore-cases.json")["cases"]):
        if case["context"].keys() != {"messages"}:
            continue
        session, messages = f"{n}", case["context"]["messages"]
        ops = [{"op": "put", "message_id": f"{k}", "pos": k, "message": one} for k, one in enumerate(messages)]
        if not ops:
            continue
        answer = await write(admin, scope, *ops, session=session)
        if not case["decode"]["ok"]:
            assert refused(answer, "invalid_request")["gate"] == "malformed_envelope", case["name"]
            continue
        if not case["restore"]["ok"] or any(map(answers_no_call, messages)):
            assert refused(answer, "invalid_request")["gate"] == "checkpoint_incompatible", case["name"]
            continue
        read(answer)
        await check_checkpoint(admin, scope, session, case)


async def check_checkpoint(client: httpx.AsyncClient, scope: str, session: str, case: Any) -> None:
    """The checkpoint of a session restores what the kernel restored of the case, in canonical spellings."""
    held = read(await ask(client, scope, session=session))
    answer = await ask(client, scope, "/checkpoint", session=session)
    if max(held["partition_tokens"].values()) > 2**32 - 1:
        assert refused(answer, "invalid_request")["gate"] == "checkpoint_incompatible"
        return
    restored = restore_checkpoint(decode_checkpoint(read(answer)))
    expect = case["restore"]
    assert restored.partition_tokens == held["partition_tokens"] == expect["partition_tokens"], case["name"]
    assert (len(restored.history), held["history_len"]) == (expect["history_len"],) * 2, case["name"]
    again = [canonical_message(decode_message(one)) for one in expect["reprojected_messages"]]
    if all(one["body"]["form"] != "reference" for one in held["messages"]):
        assert text(restored.messages()) == text(again), case["name"]


@pytest.mark.parametrize("seed", range(3))
@golden("server-context.json")
async def test_merged_sessions_are_those_of_the_kernel_in_any_order_of_arrival(
    device: NewDevice, scope: str, case: Any, seed: int
) -> None:
    devices = authors(device, case["ops"])
    for one, op in arrivals(devices.values(), Random(f"{seed}/{case['name']}")):
        read(await one.offer([op]))
    (session,) = {op["session_id"] for op in case["ops"]}
    client, expect = next(iter(devices.values())).client, case["expect"]
    held = read(await ask(client, scope, session=session))
    assert held["message_ids"] == expect["order"]
    assert text(held["messages"]) == text(expect["messages"])
    assert held["pending"] == waiting(case)
    if not expect["restore_ok"]:
        return
    assert held["partition_tokens"] == expect["partition_tokens"]
    shown = read(await ask(client, scope, "/render", session=session, window=case.get("max_context_tokens", WINDOW)))
    exact = shown.pop("exact")
    if needs_tokenizer(case, expect["render"]):
        assert not exact
        shown["estimated_tokens"] = expect["render"]["estimated_tokens"]
    assert text(shown) == text(expect["render"])


def authors(device: NewDevice, ops: list[Any]) -> dict[str, Device]:
    """The devices of a case, each with its ops at stamps in the case's order."""
    devices: dict[str, Device] = {}
    for n, op in enumerate(sorted(ops, key=key)):
        one = devices.setdefault(op["hlc"]["device_id"], device(op["hlc"]["device_id"]))
        one.wall_ms = START_MS + n
        carried(one, CONTEXT, {"session": op["session_id"], "source": op["op_id"], **op["body"]})
    return devices


def key(op: Any) -> tuple[Json, ...]:
    hlc = op["hlc"]
    return hlc["wall_ms"], hlc["counter"], hlc["device_id"], op["op_id"]


def arrivals(devices: Any, dice: Random) -> Iterator[tuple[Device, Op]]:
    """Each op with its device, a device's own in their order, else in any."""
    waiting = {one.name: (one, iter(one.ops)) for one in devices}
    turns = [one.name for one in devices for _ in one.ops]
    dice.shuffle(turns)
    for name in turns:
        one, ops = waiting[name]
        yield one, next(ops)


def waiting(case: Any) -> list[str]:
    """The messages whose moves are pending."""
    pending = {name for name, status in case["expect"]["statuses"].items() if status == "pending"}
    return sorted({op["body"]["message_id"] for op in case["ops"] if op["op_id"] in pending})
