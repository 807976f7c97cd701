"""Stored checkpoints as a list, and each text by byte ranges (server.md §4): a broken download goes on."""

import httpx
import orjson
import pytest

from foldpoint.checkpoint import checkpoint_from_ops
from tests.fixtures.devices import Device, NewDevice, checkpoint_text, collect
from tests.wire.answers import read, refused


@pytest.fixture
async def mac(device: NewDevice, scope: str) -> Device:
    mac = device("mac")
    mac.facts(3)
    await mac.push()
    for stop in (1, 2, 3):
        read(await mac.client.put(f"/sync/{scope}/checkpoints", content=checkpoint_text(mac.ops[:stop])))
    return mac


def url_of(scope: str, mac: Device, stop: int) -> str:
    return f"/v1/scopes/{scope}/checkpoints/{checkpoint_from_ops(mac.ops[:stop]).checkpoint_hash}"


async def test_the_list_has_the_newest_first_without_their_texts(mac: Device, scope: str) -> None:
    answer = read(await mac.client.get(f"/v1/scopes/{scope}/checkpoints"))
    assert answer.keys() == {"checkpoints", "cursor"}
    own = [checkpoint_from_ops(mac.ops[:stop]) for stop in (3, 2, 1)]
    assert [entry["checkpoint_hash"] for entry in answer["checkpoints"]] == [one.checkpoint_hash for one in own]
    newest = answer["checkpoints"][0]
    assert newest == {
        "checkpoint_hash": own[0].checkpoint_hash,
        "state_hash": own[0].state_hash,
        "origin": "device",
        "exact": True,
        "size": len(checkpoint_text(mac.ops)),
        "created_at": newest["created_at"],
        "frontier": {"mac": 2},
        "cursor": newest["cursor"],
        "latest": True,
        "base": False,
    }
    assert [entry["latest"] for entry in answer["checkpoints"]] == [True, False, False]
    await collect_with(mac)
    assert read(await mac.client.get(f"/v1/scopes/{scope}/checkpoints"))["checkpoints"][0]["base"] is True


async def collect_with(mac: Device) -> None:
    """Collect under the checkpoint that is stored already."""
    await mac.ack()
    assert read(await mac.client.post(f"/sync/{mac.scope}/gc"))["dropped"] == {"mac": 3}


async def test_the_list_is_paged(mac: Device, scope: str) -> None:
    found, params = [], {"limit": "1"}
    while True:
        page = read(await mac.client.get(f"/v1/scopes/{scope}/checkpoints", params=params))
        found += [entry["size"] for entry in page["checkpoints"]]
        if page["cursor"] is None:
            break
        params["cursor"] = page["cursor"]
    assert found == [len(checkpoint_text(mac.ops[:stop])) for stop in (3, 2, 1)]
    url = f"/v1/scopes/{scope}/checkpoints"
    for cursor in ("", "x", "e30", "eyJpZCI6LTF9", "eyJpZCI6IngifQ"):
        refused(await mac.client.get(url, params={"cursor": cursor}), "invalid_cursor")
    for limit in (0, 101):
        refused(await mac.client.get(url, params={"limit": limit}), "invalid_request")


async def test_a_text_is_canonical_whole_and_names_itself(mac: Device, scope: str) -> None:
    response = await mac.client.get(url_of(scope, mac, 2))
    text = checkpoint_text(mac.ops[:2])
    assert (response.status_code, response.content) == (200, text)
    assert response.headers["content-type"] == "application/json"
    assert response.headers["content-length"] == str(len(text))
    assert response.headers["accept-ranges"] == "bytes"
    assert response.headers["etag"] == f'"{checkpoint_from_ops(mac.ops[:2]).checkpoint_hash}"'
    again = await mac.client.get(url_of(scope, mac, 2), headers={"If-None-Match": response.headers["etag"]})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", response.headers["etag"])


async def test_a_text_that_is_held_is_not_sent_again(mac: Device, scope: str) -> None:
    etag = (await mac.client.get(url_of(scope, mac, 2))).headers["etag"]
    for held in (etag, f"W/{etag}", f'"x", {etag}', f'"a,b" ,W/"y",W/{etag},"z"', "*"):
        headers = {"If-None-Match": held, "Range": "bytes=0-1"}
        response = await mac.client.get(url_of(scope, mac, 2), headers=headers)
        assert (response.status_code, response.content, response.headers["etag"]) == (304, b"", etag), held
    for other in ('"ckpt-0"', '"*"', etag.strip('"'), "", f'"x{etag[1:]}'):
        response = await mac.client.get(url_of(scope, mac, 2), headers={"If-None-Match": other})
        assert (response.status_code, response.content) == (200, checkpoint_text(mac.ops[:2])), other


async def test_ranges_give_the_bytes_they_name(mac: Device, scope: str) -> None:
    text = checkpoint_text(mac.ops)
    size = len(text)
    for header, start, stop in (
        ("bytes=0-", 0, size), ("bytes=0-0", 0, 1), ("bytes=10-19", 10, 20), (f"bytes={size - 1}-", size - 1, size),
        (f"bytes=5-{size}", 5, size), ("bytes=5-99999999999", 5, size), ("bytes=5-" + "9" * 5_000, 5, size),
        ("bytes=-1", size - 1, size), ("bytes=-10", size - 10, size), (f"bytes=-{size}", 0, size),
        (f"bytes=-{size + 1}", 0, size), ("Bytes = 1-2", 1, 3), ("bytes=" + "0" * 30 + "7-7", 7, 8),
    ):  # fmt: skip
        response = await mac.client.get(url_of(scope, mac, 3), headers={"Range": header})
        assert (response.status_code, response.content) == (206, text[start:stop]), header
        assert response.headers["content-range"] == f"bytes {start}-{stop - 1}/{size}"
        assert response.headers["content-length"] == str(stop - start)


@pytest.mark.parametrize(
    "header", ["bytes=99999999-", "bytes=5-4", "bytes=-0", "bytes=", "bytes=-", "bytes=1", "bytes=x-y", "bytes=1-2-3"]
)
async def test_a_range_in_which_no_byte_is_is_416_with_the_length(mac: Device, scope: str, header: str) -> None:
    response = await mac.client.get(url_of(scope, mac, 3), headers={"Range": header})
    problem = refused(response, "invalid_request", status=416)
    size = len(checkpoint_text(mac.ops))
    assert (problem["size"], response.headers["content-range"]) == (size, f"bytes */{size}")


@pytest.mark.parametrize("header", ["bytes=1-2,4-5", "bytes=1-2, x", "lines=1-2", "x", "=1-2", ""])
async def test_several_ranges_and_other_units_give_the_whole_text(mac: Device, scope: str, header: str) -> None:
    response = await mac.client.get(url_of(scope, mac, 3), headers={"Range": header})
    assert (response.status_code, response.content) == (200, checkpoint_text(mac.ops))
    assert "content-range" not in response.headers


async def test_a_range_counts_only_if_it_is_of_the_text_that_the_client_has(mac: Device, scope: str) -> None:
    url, text = url_of(scope, mac, 3), checkpoint_text(mac.ops)
    etag = (await mac.client.get(url)).headers["etag"]
    same = await mac.client.get(url, headers={"Range": "bytes=5-", "If-Range": etag})
    assert (same.status_code, same.content) == (206, text[5:])
    for other in ('"ckpt-0"', f"W/{etag}", "Thu, 01 Jan 2026 00:00:00 GMT"):
        for header in ("bytes=5-", "bytes=99999999-"):
            response = await mac.client.get(url, headers={"Range": header, "If-Range": other})
            assert (response.status_code, response.content) == (200, text), other


async def test_a_text_of_many_chunks_is_the_same_in_pieces(device: NewDevice, scope: str) -> None:
    mac = device("mac")
    for number in range(40):
        mac.write("knowledge", {"id": str(number), "text": f"{number:04}" * 5_000})
    await mac.push()
    await collect([mac])
    text = checkpoint_text(mac.ops)
    assert len(text) > 3 * 256 * 1024
    url = url_of(scope, mac, 40)
    assert (await mac.client.get(url)).content == text
    for start, stop in ((0, 300_000), (262_143, 262_146), (262_144, 524_288), (524_287, 800_000), (700_000, len(text))):
        response = await mac.client.get(url, headers={"Range": f"bytes={start}-{stop - 1}"})
        assert response.content == text[start:stop], (start, stop)
    assert (await mac.client.get(f"/sync/{scope}/checkpoints/latest")).content == text


async def test_an_unknown_or_foreign_checkpoint_is_not_found(mac: Device, admin: httpx.AsyncClient, scope: str) -> None:
    refused(await admin.get(f"/v1/scopes/{scope}/checkpoints/ckpt-0"), "not_found")
    refused(await admin.get(f"/v1/scopes/{scope}/checkpoints/{'x' * 5_000}"), "not_found")
    read(await admin.post(f"/sync/{scope}-2/devices/mac/ops", content=b"[]"))
    refused(await admin.get(url_of(scope + "-2", mac, 1)), "not_found")
    assert orjson.loads((await admin.get(url_of(scope, mac, 1))).content)["scopes"] == ["personal"]
