"""An org-key directory as a client uses it, and wraps as granters publish them; nothing of these opens."""

from typing import Any
from urllib.parse import quote

import httpx
import orjson

from foldpoint.canonical import Json
from tests.fixtures.devices import envelope
from tests.wire.answers import read

ADA = "acc_ada"


def wrap(epoch: int, recipient: str, text: str = "00", **changed: Json) -> dict[str, Json]:
    """A wrap of the org `acme`, in the crate's field order; `text` is its ciphertext."""
    return {
        "car_wrap": "org-key-wrap/v2",
        "org": "acme",
        "epoch": epoch,
        "recipient": recipient,
        "publisher": "acc_grace",
        "ephemeral_pub": "aa",
        "recipient_pub": "bb",
        "envelope": envelope(text),
        "signature": "cc",
        **changed,
    }


class Directory:
    """The directory of one scope, as one caller may use it."""

    def __init__(self, client: httpx.AsyncClient, scope: str) -> None:
        self.client, self.path = client, f"/sync/{scope}/org-keys"

    async def offer(self, body: dict[str, Json] | bytes) -> httpx.Response:
        """Publish a wrap."""
        text = body if isinstance(body, bytes) else orjson.dumps(body)
        return await self.client.put(f"{self.path}/wrapped", content=text)

    async def wraps(self, recipient: str = ADA) -> Any:
        return read(await self.client.get(f"{self.path}/wrapped/{quote(recipient, safe='')}"))

    async def offer_key(self, account: str, key: str) -> httpx.Response:
        url = f"{self.path}/pubkeys/{quote(account, safe='')}"
        return await self.client.put(url, json={"public_hex": key})

    async def keys(self) -> dict[str, str]:
        listed = read(await self.client.get(f"{self.path}/pubkeys"))
        return {entry["account_id"]: entry["public_hex"] for entry in listed}
