"""What becomes of a pushed batch (car-sync.md §11.2): in seq order, the good prefix stays, refusals say why."""

import httpx
import orjson
import pytest

from foldpoint.hlc import Hlc
from foldpoint.op import Op, make_op
from tests.fixtures.devices import NewDevice, body_of, op_ids
from tests.wire.answers import read, refused

OTHER_ID = "op-" + "0" * 32


def altered(op: Op, **changes: object) -> Op:
    """The op with other fields and the id that fits them."""
    fields = {"device_id": op.device_id, "seq": op.seq, "prev": op.prev, "hlc": op.hlc, **changes}
    return make_op(scope=op.scope, surface=op.surface, payload=op.payload, **fields)  # type: ignore[arg-type]


async def test_ops_are_taken_in_seq_order_whatever_their_place_in_the_array(device: NewDevice) -> None:
    mac = device("mac")
    ops = mac.facts(5)
    response = await mac.offer([ops[3], ops[0], ops[4], ops[2], ops[1]])
    assert read(response) == {"accepted": 5, "deduped": 0}
    assert op_ids(await mac.pull()) == [op.op_id for op in ops]


async def test_R18_the_same_push_again_is_all_duplicates_and_stores_no_row(device: NewDevice, scope: str) -> None:
    mac = device("mac")
    ops = mac.facts(4)
    assert read(await mac.offer(ops)) == {"accepted": 4, "deduped": 0}
    before = read(await mac.client.get(f"/v1/scopes/{scope}/"))
    assert before["frontier"] == {"mac": 3}
    assert read(await mac.offer(ops)) == {"accepted": 0, "deduped": 4}
    after = read(await mac.client.get(f"/v1/scopes/{scope}/"))
    assert (after["ops"], after["frontier"]) == (before["ops"], before["frontier"]) == (4, {"mac": 3})
    results = read(await mac.client.post(f"/v1/scopes/{scope}/devices/mac/ops", content=body_of(ops)))["results"]
    assert [result["result"] for result in results] == ["duplicate"] * 4


async def test_R22_a_batch_that_overlaps_what_is_stored_gives_what_pushing_once_gives(device: NewDevice) -> None:
    mac = device("mac")
    ops = mac.facts(6)
    assert read(await mac.offer(ops[:4])) == {"accepted": 4, "deduped": 0}
    assert read(await mac.offer(ops[2:])) == {"accepted": 2, "deduped": 2}
    assert op_ids(await mac.pull()) == [op.op_id for op in ops]


async def test_R23_an_op_already_stored_is_a_duplicate_however_far_the_head_moved(device: NewDevice) -> None:
    mac = device("mac")
    ops = mac.facts(16)
    await mac.offer(ops[:12])
    assert read(await mac.offer([ops[11]])) == {"accepted": 0, "deduped": 1}
    await mac.offer(ops[12:])
    assert read(await mac.offer([ops[11]])) == {"accepted": 0, "deduped": 1}
    assert read(await mac.offer([ops[0]])) == {"accepted": 0, "deduped": 1}


async def test_R30_the_same_op_twice_in_one_batch_is_a_duplicate(device: NewDevice) -> None:
    mac = device("mac")
    one, two = mac.facts(2)
    assert read(await mac.offer([one, one, two, one, two])) == {"accepted": 2, "deduped": 3}


async def test_R30_an_empty_batch_is_fine(device: NewDevice) -> None:
    assert read(await device("mac").offer([])) == {"accepted": 0, "deduped": 0}


@pytest.mark.parametrize("body", [b"", b"null", b"{}", b'"[]"', b"7", b"\xef\xbb\xbf[]", b"  ", b"\xff"])
async def test_R30_a_body_that_is_no_array_is_refused_as_a_whole(device: NewDevice, body: bytes) -> None:
    mac = device("mac")
    problem = refused(await mac.client.post(f"{mac.path}/ops", content=body), "invalid_request")
    assert (problem["accepted"], problem["deduped"]) == (0, 0)


async def test_R30_ops_of_two_devices_fail_at_the_foreign_ones_place_in_seq_order(device: NewDevice) -> None:
    mac, phone = device("mac"), device("phone")
    own, foreign = mac.facts(4), phone.facts(3)
    problem = refused(await mac.offer([foreign[2], *own]), "foreign_ops")
    assert problem["device_id"] == "mac"
    assert problem["op_device"] == "phone"
    assert problem["seq"] == 2
    assert (problem["accepted"], problem["deduped"]) == (2, 0)


async def test_a_gap_names_the_expected_and_the_found_seq_and_keeps_the_prefix(device: NewDevice) -> None:
    mac = device("mac")
    ops = mac.facts(6)
    problem = refused(await mac.offer([*ops[:2], *ops[3:]]), "gap")
    assert {name: problem[name] for name in ("device_id", "expected", "found", "accepted", "deduped")} == {
        "device_id": "mac", "expected": 2, "found": 3, "accepted": 2, "deduped": 0,
    }  # fmt: skip
    assert problem["advice"]
    assert op_ids(await mac.pull()) == [op.op_id for op in ops[:2]]
    assert read(await mac.offer(ops)) == {"accepted": 4, "deduped": 2}


async def test_R14_another_op_at_a_stored_seq_is_a_fork_and_nothing_after_it_is_stored(device: NewDevice) -> None:
    mac, copy = device("mac"), device("mac")
    stored = mac.facts(3)
    await mac.push()
    copy.facts(2)
    copy.write("knowledge", {"id": "mine"})
    copy.facts(2)
    problem = refused(await copy.offer(copy.ops), "chain_fork")
    facts = {name: problem[name] for name in ("device_id", "seq", "stored_op_id", "op_id", "prev")}
    assert facts == {
        "device_id": "mac",
        "seq": 2,
        "stored_op_id": stored[2].op_id,
        "op_id": copy.ops[2].op_id,
        "prev": copy.ops[1].op_id,
    }
    assert (problem["accepted"], problem["deduped"]) == (0, 2)
    assert problem["advice"]
    assert op_ids(await mac.pull()) == [op.op_id for op in stored]
    mac.facts(1)
    await mac.push()


async def test_two_ops_of_one_seq_in_a_batch_the_first_is_stored_and_the_second_is_a_fork(device: NewDevice) -> None:
    mac, copy = device("mac"), device("mac")
    first = mac.write("knowledge", {"id": "first"})
    second = copy.write("knowledge", {"id": "second"})
    problem = refused(await mac.offer([first, second]), "chain_fork")
    assert problem["stored_op_id"] == first.op_id
    assert (problem["accepted"], problem["deduped"]) == (1, 0)


def broken_ops(ops: list[Op]) -> dict[str, tuple[Op, str]]:
    second, head = ops[1], ops[0]
    return {
        "an id that does not recompute": (
            Op(OTHER_ID, second.hlc, "mac", 1, second.prev, "personal", second.surface, {}, b"{}"),
            "stored op_id does not match content",
        ),
        "a stamp of another device": (
            altered(second, hlc=second.hlc._replace(device_id="phone")),
            "hlc.device_id != device_id",
        ),
        "a prev that is not the head": (
            altered(second, prev=OTHER_ID),
            f"prev does not link the relay-held head {head.op_id}",
        ),
        "no prev": (altered(second, prev=None), f"prev does not link the relay-held head {head.op_id}"),
        "an equal stamp": (altered(second, hlc=head.hlc), "hlc does not advance past the relay-held head"),
        "R10 a stamp that goes back": (
            altered(second, hlc=head.hlc._replace(wall_ms=head.hlc.wall_ms - 1)),
            "hlc does not advance past the relay-held head",
        ),
    }


@pytest.mark.parametrize("fault", broken_ops([make_op("mac", 0, None, Hlc(1, 0, "mac"), "personal", "run", 1)] * 2))
async def test_an_op_that_does_not_continue_its_chain_is_chain_broken(device: NewDevice, fault: str) -> None:
    mac = device("mac")
    ops = mac.facts(2)
    bad, detail = broken_ops(ops)[fault]
    problem = refused(await mac.offer([ops[0], bad]), "chain_broken")
    assert problem["detail"] == f"op {bad.op_id}: {detail}"
    assert (problem["device_id"], problem["seq"], problem["op_id"]) == ("mac", 1, bad.op_id)
    assert (problem["accepted"], problem["deduped"]) == (1, 0)
    assert read(await mac.offer(ops)) == {"accepted": 1, "deduped": 1}


async def test_the_first_op_must_have_no_prev(device: NewDevice) -> None:
    mac = device("mac")
    (op,) = mac.facts(1)
    problem = refused(await mac.offer([altered(op, prev=OTHER_ID)]), "chain_broken")
    assert problem["detail"].endswith("seq 0 must have no prev")


async def test_tampered_content_at_a_held_seq_is_broken_and_no_fork(device: NewDevice) -> None:
    mac = device("mac")
    (op,) = mac.facts(1)
    await mac.push()
    forged = Op(op.op_id, op.hlc, "mac", 0, None, op.scope, op.surface, {"id": "forged"}, b'{"id":"forged"}')
    refused(await mac.offer([forged]), "chain_broken")


async def test_a_batch_over_many_transactions_keeps_all_before_the_refused_op(device: NewDevice) -> None:
    mac = device("mac")
    ops = mac.facts(2_600)
    problem = refused(await mac.offer([*ops[:2_400], *ops[2_401:]]), "gap")
    assert (problem["accepted"], problem["expected"]) == (2_400, 2_400)
    assert read(await mac.offer(ops)) == {"accepted": 200, "deduped": 2_400}


async def test_R24_the_v1_push_says_what_became_of_each_op(device: NewDevice, scope: str) -> None:
    """As amended: 1–6 stored, 7 named, the rest not attempted."""
    mac = device("mac")
    records = [op.to_json() for op in mac.facts(25)]
    records[6] = {**records[6], "surface": "telepathy"}
    url = f"/v1/scopes/{scope}/devices/mac/ops"
    answer = read(await mac.client.post(url, content=orjson.dumps(records)))
    results = answer["results"]
    assert [result["result"] for result in results] == ["stored"] * 6 + ["rejected"] + ["not_attempted"] * 18
    assert [result["op_id"] for result in results] == [op.op_id for op in mac.ops]
    bad = results[6]
    assert (bad["code"], bad["path"], bad["index"]) == ("unreadable_op", "surface", 6)
    assert bad["detail"]
    assert (answer["accepted"], answer["deduped"]) == (6, 0)
    assert {name for result in results[:6] for name in result} == {"op_id", "result"}
    again = read(await mac.client.post(url, content=body_of(mac.ops)))
    assert [result["result"] for result in again["results"]] == ["duplicate"] * 6 + ["stored"] * 19


async def test_the_v1_results_are_in_the_order_sent(device: NewDevice, scope: str) -> None:
    mac = device("mac")
    one, two, three, four = mac.facts(4)
    await mac.offer([one])
    sent = [four, two, one]
    answer = read(await mac.client.post(f"/v1/scopes/{scope}/devices/mac/ops", content=body_of(sent)))
    assert [(result["op_id"], result["result"]) for result in answer["results"]] == [
        (four.op_id, "rejected"),
        (two.op_id, "stored"),
        (one.op_id, "duplicate"),
    ]
    rejected = answer["results"][0]
    assert (rejected["code"], rejected["expected"], rejected["found"]) == ("gap", 2, 3)
    assert three.op_id not in str(answer)


async def test_the_v1_push_refuses_a_body_that_is_no_array(admin: httpx.AsyncClient, scope: str) -> None:
    refused(await admin.post(f"/v1/scopes/{scope}/devices/mac/ops", content=b"{}"), "invalid_request")
