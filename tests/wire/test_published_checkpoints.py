"""Checkpoints that devices publish (server.md §3): stored only if they are our own fold, byte for byte."""

from collections.abc import Sequence
from typing import Any

import httpx
import orjson
import pytest

from foldpoint.checkpoint import Checkpoint, checkpoint_from_ops, make_checkpoint
from foldpoint.fold import fold
from foldpoint.frontier import Covered
from foldpoint.op import Op
from foldpoint.state import SyncState
from tests.fixtures.devices import Device, NewDevice, checkpoint_text, collect
from tests.wire.answers import read, refused


async def put(client: httpx.AsyncClient, scope: str, checkpoint: Checkpoint | bytes) -> httpx.Response:
    text = checkpoint if isinstance(checkpoint, bytes) else b"".join(checkpoint.pieces())
    return await client.put(f"/sync/{scope}/checkpoints", content=text)


async def latest(client: httpx.AsyncClient, scope: str) -> Any:
    return read(await client.get(f"/sync/{scope}/checkpoints/latest"))


@pytest.fixture
async def mac(device: NewDevice) -> Device:
    """A device with ops of every tier in two scopes, all pushed."""
    mac = device("mac")
    mac.say("hello")
    mac.write("knowledge", {"id": "a", "x": 1.0})
    mac.write("registry:config", {"id": "a", "v": 1})
    mac.write("registry:config", {"id": "a", "v": 2}, "shared:acme")
    for status in ("pending", "committed"):
        mac.intend("r1", status, epoch=2)
    return await mac.push()


async def test_an_honest_checkpoint_is_stored_once_and_becomes_the_latest(mac: Device, scope: str) -> None:
    text = checkpoint_text(mac.ops)
    assert read(await put(mac.client, scope, text)) is True
    assert read(await put(mac.client, scope, text)) is False
    assert (await mac.client.get(f"/sync/{scope}/checkpoints/latest")).content == text


async def test_the_text_may_be_written_otherwise_and_is_kept_canonical(mac: Device, scope: str) -> None:
    text = checkpoint_text(mac.ops)
    loose = orjson.dumps(dict(reversed(orjson.loads(text).items())), option=orjson.OPT_INDENT_2)
    assert read(await put(mac.client, scope, loose)) is True
    assert (await mac.client.get(f"/sync/{scope}/checkpoints/latest")).content == text


async def test_an_honest_checkpoint_of_any_prefix_is_stored(mac: Device, scope: str) -> None:
    for stop in range(len(mac.ops) + 1):
        assert read(await put(mac.client, scope, checkpoint_text(mac.ops[:stop]))) is True


async def test_the_latest_moves_only_to_what_dominates_it_and_also_on_a_put_again(
    device: NewDevice, scope: str
) -> None:
    mac, phone = device("mac"), device("phone")
    for each in (mac, phone):
        each.facts(4)
        await each.push()

    async def publish(on_mac: int, on_phone: int, *, stored: bool = True) -> str:
        checkpoint = checkpoint_from_ops([*mac.ops[:on_mac], *phone.ops[:on_phone]])
        assert read(await put(mac.client, scope, checkpoint)) is stored
        return checkpoint.checkpoint_hash

    async def latest_hash() -> str:
        return str((await latest(mac.client, scope))["checkpoint_hash"])

    first = await publish(2, 2)
    assert await latest_hash() == first
    await publish(1, 2)
    assert await latest_hash() == first
    await publish(4, 1)
    assert await latest_hash() == first
    wider = await publish(2, 3)
    assert await latest_hash() == wider
    await publish(2, 2, stored=False)
    assert await latest_hash() == wider


def false_state(ops: Sequence[Op]) -> Checkpoint:
    """Self-consistent, and a lie."""
    own = checkpoint_from_ops(ops)
    forged = SyncState({**own.state.logs, "knowledge": {}}, own.state.registries, own.state.intents)
    return make_checkpoint(own.frontier, own.scopes, forged)


async def test_a_state_that_is_not_our_fold_is_refused_and_shown_to_the_admin(mac: Device, scope: str) -> None:
    lie = false_state(mac.ops)
    lie.verify()
    problem = refused(await put(mac.client, scope, lie), "checkpoint_state_mismatch")
    own_hash = checkpoint_from_ops(mac.ops).state_hash
    assert (problem["state_hash"], problem["own_state_hash"]) == (lie.state_hash, own_hash)
    assert await latest(mac.client, scope) is None
    shown = read(await mac.client.get(f"/v1/scopes/{scope}/roster"))["checkpoint_problem"]
    assert (shown["code"], shown["state_hash"]) == ("checkpoint_state_mismatch", lie.state_hash)
    assert shown["at"]
    assert read(await put(mac.client, scope, checkpoint_from_ops(mac.ops))) is True


async def test_a_false_state_of_a_stored_frontier_is_refused_too(mac: Device, scope: str) -> None:
    await put(mac.client, scope, checkpoint_from_ops(mac.ops))
    refused(await put(mac.client, scope, false_state(mac.ops)), "checkpoint_state_mismatch")
    assert (await mac.client.get(f"/sync/{scope}/checkpoints/latest")).content == checkpoint_text(mac.ops)


def tampered(ops: Sequence[Op], **fields: Any) -> bytes:
    return orjson.dumps({**orjson.loads(checkpoint_text(ops)), **fields})


async def test_hashes_that_do_not_fit_are_invalid_state_first(mac: Device, scope: str) -> None:
    other = checkpoint_from_ops(mac.ops[:1])
    both = tampered(mac.ops, state_hash=other.state_hash, checkpoint_hash=other.checkpoint_hash)
    problem = refused(await put(mac.client, scope, both), "checkpoint_invalid")
    assert (problem["expected"], problem["actual"]) == (other.state_hash, checkpoint_from_ops(mac.ops).state_hash)
    assert "HashMismatch" in problem["detail"]
    renamed = tampered(mac.ops, checkpoint_hash=other.checkpoint_hash)
    problem = refused(await put(mac.client, scope, renamed), "checkpoint_invalid")
    assert (problem["expected"], problem["actual"]) == (
        other.checkpoint_hash,
        checkpoint_from_ops(mac.ops).checkpoint_hash,
    )
    assert "ContentMismatch" in problem["detail"]
    assert await latest(mac.client, scope) is None


def claims(ops: Sequence[Op], claim: Covered, scopes: Sequence[str] | None = None, name: str = "mac") -> Checkpoint:
    """Our fold of the ops under another frontier."""
    own = checkpoint_from_ops(ops)
    return make_checkpoint({**own.frontier, name: claim}, list(scopes or own.scopes), own.state)


async def test_a_frontier_or_scopes_that_are_not_ours_are_unverified(mac: Device, scope: str) -> None:
    head = mac.ops[-1]
    own = Covered(head.seq, head.hlc, head.op_id)
    false: dict[str, Checkpoint] = {
        "a seq beyond the head": claims(mac.ops, own._replace(seq=6)),
        "a head of another op": claims(mac.ops, own._replace(head=mac.ops[0].op_id)),
        "a stamp of another op": claims(mac.ops, own._replace(hlc=head.hlc._replace(counter=7))),
        "a device without a chain": claims(mac.ops, own, name="phone"),
        "a scope nobody used": claims(mac.ops, own, scopes=["personal", "shared:acme", "shared:evil"]),
        "a scope too few": claims(mac.ops, own, scopes=["personal"]),
        "a scope from later": make_checkpoint(
            checkpoint_from_ops(mac.ops[:2]).frontier, ["personal", "shared:acme"], fold(mac.ops[:2])
        ),
    }
    for fault, checkpoint in false.items():
        checkpoint.verify()
        response = await put(mac.client, scope, checkpoint)
        assert response.json().get("code") == "checkpoint_unverified", fault
    problem = refused(await put(mac.client, scope, false["a seq beyond the head"]), "checkpoint_unverified")
    assert (problem["device_id"], problem["seq"]) == ("mac", 6)
    assert await latest(mac.client, scope) is None


async def test_a_frontier_that_cannot_be_computed_any_more_is_409(mac: Device, scope: str) -> None:
    assert await collect([mac], mac.ops[:4]) == {"mac": 4}
    problem = refused(await put(mac.client, scope, checkpoint_from_ops(mac.ops[:2])), "frontier_collected", status=409)
    assert problem["frontiers"] == [{"mac": 3}]
    assert read(await put(mac.client, scope, checkpoint_text(mac.ops[:4]))) is False
    assert read(await put(mac.client, scope, checkpoint_text(mac.ops[:5]))) is True
    assert read(await put(mac.client, scope, checkpoint_text(mac.ops))) is True


async def test_after_a_collection_a_lie_above_the_floor_is_still_found(mac: Device, scope: str) -> None:
    await collect([mac])
    mac.facts(1)
    await mac.push()
    refused(await put(mac.client, scope, false_state(mac.ops)), "checkpoint_state_mismatch")
    assert read(await put(mac.client, scope, checkpoint_from_ops(mac.ops))) is True


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b"{}", b"{", b'{"frontier":{},"scopes":[],"state_hash":"s"}'])
async def test_what_is_no_checkpoint_is_an_invalid_request(admin: httpx.AsyncClient, scope: str, body: bytes) -> None:
    assert "path" in refused(await put(admin, scope, body), "invalid_request")


async def test_a_field_given_twice_is_no_checkpoint_though_the_last_would_do(mac: Device, scope: str) -> None:
    text = checkpoint_text(mac.ops)
    for field in (b'"scopes":', b'"head":'):
        repeated = text.replace(field, field + b'"",' + field, 1)
        assert refused(await put(mac.client, scope, repeated), "invalid_request")["path"].endswith(field.decode()[1:-2])
    in_payload = text.replace(b'"x":1.0', b'"x":2,"x":1.0')
    assert in_payload != text
    assert read(await put(mac.client, scope, in_payload)) is True


async def test_a_checkpoint_of_nothing_is_legal(admin: httpx.AsyncClient, scope: str) -> None:
    assert read(await put(admin, scope, checkpoint_text([]))) is True
    assert (await admin.get(f"/sync/{scope}/checkpoints/latest")).content == checkpoint_text([])
