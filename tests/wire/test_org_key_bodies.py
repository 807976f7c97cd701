"""What an org-key directory takes in: whatever its devices can read back, and no more (car-sync.md §13b)."""

import orjson
import pytest

from foldpoint.org_directory import MAX_ACCOUNT_BYTES, MAX_PUBLIC_HEX_BYTES, MAX_WRAP_BYTES
from tests.wire.answers import is_done, read, refused
from tests.wire.org_keys import ADA, Directory, wrap


def sized(size: int) -> bytes:
    """A wrap of exactly so many bytes."""
    bare = len(orjson.dumps(wrap(1, ADA, "")))
    return orjson.dumps(wrap(1, ADA, "0" * (size - bare)))


async def test_a_wrap_may_have_so_many_bytes_and_no_more(directory: Directory) -> None:
    assert is_done(await directory.offer(sized(MAX_WRAP_BYTES)))
    problem = refused(await directory.offer(sized(MAX_WRAP_BYTES + 1)), "too_large")
    assert problem["max_wrap_bytes"] == MAX_WRAP_BYTES
    assert problem.items() >= read(await directory.client.get("/v1/limits")).items()
    assert await directory.wraps() == [orjson.loads(sized(MAX_WRAP_BYTES))]


async def test_ids_and_keys_have_a_longest_length(directory: Directory) -> None:
    longest, key = "a" * MAX_ACCOUNT_BYTES, "0" * MAX_PUBLIC_HEX_BYTES
    assert is_done(await directory.offer(wrap(1, longest)))
    assert await directory.wraps(longest) == [wrap(1, longest)]
    assert is_done(await directory.offer_key(longest, key))
    assert await directory.keys() == {longest: key}
    for recipient in (longest + "a", "ä" * (MAX_ACCOUNT_BYTES // 2) + "a", ""):
        assert refused(await directory.offer(wrap(1, recipient)), "invalid_request")["path"] == "recipient"
    assert refused(await directory.offer_key(longest + "a", key), "invalid_request")["path"] == "account"
    assert refused(await directory.offer_key("a", key + "0"), "invalid_request")["path"] == "public_hex"


def nested(containers: int) -> bytes:
    """A wrap whose text nests so many containers."""
    return orjson.dumps(wrap(1, ADA, envelope=7)).replace(b"7", b"[" * (containers - 1) + b"]" * (containers - 1))


async def test_a_wrap_may_nest_as_deep_as_a_device_reads_it_back(directory: Directory) -> None:
    assert is_done(await directory.offer(nested(120)))
    refused(await directory.offer(nested(121)), "invalid_request")
    refused(await directory.offer(nested(8_000)), "invalid_request")
    assert await directory.wraps() == [orjson.loads(nested(120))]


def replaced(old: bytes, new: bytes) -> bytes:
    """The text of a wrap with a part of it changed."""
    text = orjson.dumps(wrap(1, ADA))
    assert text.count(old) == 1
    return text.replace(old, new)


WHOLE = wrap(1, ADA)
TEXTS = WHOLE.keys() - {"epoch", "envelope"}
EPOCHS = ("-1", "-0", "1.0", "1e3", "true", "null", '"1"', "18446744073709551616", "[1]")
FAULTS: dict[str, tuple[bytes, str]] = {
    **{f"no {name}": (orjson.dumps({n: WHOLE[n] for n in WHOLE if n != name}), name) for name in WHOLE},
    **{f"{name} is no string": (orjson.dumps(WHOLE | {name: 7}), name) for name in sorted(TEXTS)},
    **{f"epoch {epoch}": (replaced(b'"epoch":1', f'"epoch":{epoch}'.encode()), "epoch") for epoch in EPOCHS},
    "a field twice": (replaced(b'"org"', b'"epoch":2,"org"'), "epoch"),
    "a lone surrogate": (replaced(b"acc_ada", b"\\ud800"), ""),
    "no UTF-8": (replaced(b"acc_ada", b"\xff"), ""),
    "NaN": (replaced(b'"00"', b"NaN"), ""),
    "infinite": (replaced(b'"00"', b"1e400"), ""),
    "two": (orjson.dumps(WHOLE) * 2, ""),
    "a list": (orjson.dumps([WHOLE]), ""),
    "null": (b"null", ""),
    "nothing": (b"", ""),
    "a bracket": (b"{", ""),
    "brackets": (b"[" * 16_000, ""),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_wrap_that_no_device_could_read_is_refused(directory: Directory, fault: str) -> None:
    """One such wrap would keep all others from its recipient."""
    body, path = FAULTS[fault]
    assert refused(await directory.offer(body), "invalid_request")["path"] == path
    assert await directory.wraps() == []


@pytest.mark.parametrize(
    "body",
    [
        b"{}", b'{"public_hex":7}', b'{"public_hex":null}', b'{"public_hex":"ab","public_hex":"cd"}', b'"ab12"', b"[]",
        b'{"public_hex":"\\udc00"}', b'{"public_hex":"\xff"}', b"", b"{", b'{"public_hex":' * 10_000, b"7",
    ],
)  # fmt: skip
async def test_what_is_no_public_key_is_refused(directory: Directory, body: bytes) -> None:
    response = await directory.client.put(f"{directory.path}/pubkeys/{ADA}", content=body)
    refused(response, "invalid_request")
    assert await directory.keys() == {}


async def test_a_public_key_is_kept_opaquely(directory: Directory) -> None:
    for key in ("", "\0", "AB12", "no hex at all", "ä😀"):
        assert is_done(await directory.offer_key(ADA, key))
        assert await directory.keys() == {ADA: key}


async def test_an_empty_name_is_no_path(directory: Directory) -> None:
    refused(await directory.client.get(f"{directory.path}/wrapped/"), "not_found")
    refused(await directory.client.put(f"{directory.path}/pubkeys/", json={"public_hex": "ab12"}), "not_found")
