"""What every answer must be, whatever it says."""

from typing import Any

import httpx
import orjson

from app.problems import CODES
from tests.wire.documented import refusals, route_of


def read(response: httpx.Response) -> Any:
    """The JSON of an answer that must have succeeded."""
    assert response.status_code == 200, response.text
    return orjson.loads(response.content)


def is_done(response: httpx.Response) -> bool:
    """Whether a call succeeded that answers with nothing; the wire's client reads an empty body as null."""
    assert (response.status_code, response.content) == (204, b""), response.text
    return True


def refused(response: httpx.Response, code: str, status: int | None = None) -> dict[str, Any]:
    """The body of a problem with this code, which must come as server.md §12 and the route's document say."""
    body: dict[str, Any] = orjson.loads(response.content)
    assert body.get("code") == code, response.text
    assert response.status_code == body["status"] == (status or CODES[code])
    assert response.headers["content-type"] == "application/problem+json"
    assert body["detail"]
    route = route_of(response.request)
    assert route is None or (code, response.status_code) in refusals(route), (code, route)
    return body
