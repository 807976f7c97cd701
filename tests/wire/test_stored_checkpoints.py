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
    other = await mac.client.get(url_of(scope, mac, 2), headers={"If-None-Match": '"ckpt-0"'})
    assert other.content == text


async def test_ranges_give_the_bytes_they_name(mac: Device, scope: str) -> None:
    text = checkpoint_text(mac.ops)
    size = len(text)
    for header, start, stop in (
        ("bytes=0-", 0, size), ("bytes=0-0", 0, 1), ("bytes=10-19", 10, 20), (f"bytes={size - 1}-", size - 1, size),
        (f"bytes=5-{size}", 5, size), ("bytes=5-99999999999", 5, size),
    ):  # fmt: skip
        response = await mac.client.get(url_of(scope, mac, 3), headers={"Range": header})
        assert (response.status_code, response.content) == (206, text[start:stop]), header
        assert response.headers["content-range"] == f"bytes {start}-{stop - 1}/{size}"
        assert response.headers["content-length"] == str(stop - start)


@pytest.mark.parametrize(
    "header", ["bytes=99999999-", "bytes=5-4", "bytes=-5", "bytes=1-2,4-5", "lines=1-2", "x", "bytes="]
)
async def test_any_other_range_is_416(mac: Device, scope: str, header: str) -> None:
    response = await mac.client.get(url_of(scope, mac, 3), headers={"Range": header})
    refused(response, "invalid_request", status=416)


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
