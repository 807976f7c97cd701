"""Keys of sealed scopes, and the mode of a scope that is empty (server.md §9)."""

from fastapi import APIRouter, Response

from app.problems import Problem
from app.routes.asking import AskingDep, BodyDep, answer, read_body, unreadable
from app.routes.documents import gives, takes
from app.services.access import Right
from app.services.keys.trying_keys import MOST_BYTES, Given, too_many
from app.services.modes import read_mode, set_mode
from foldpoint.canonical import Unreadable

router = APIRouter(prefix="/v1/scopes/{scope}", tags=["keys"])

UNLOCKED = {"unlocked": ["org:acme", "personal"], "opened_ops": 120, "unopened_ops": 0}
LOCKED = {"unlocked": [], "opened_ops": 0, "unopened_ops": 120}
KEY = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
GIVEN = {
    "type": "object",
    "properties": {
        "passphrase": {"type": "string", "format": "password"},
        "user": {"type": "string", "description": "the account that the devices derive their keys for"},
        "granters": {
            "type": "array",
            "items": KEY,
            "description": "Ed25519 public keys: org keys that one of them signed for this user are unwrapped from "
            "the scope's directory, at every epoch",
        },
        "audiences": {
            "type": "object",
            "description": "by audience, `personal` or `org:<org>`, its key; of an org also its keys by epoch, as its "
            "members share them or as they are derived",
            "additionalProperties": {"oneOf": [KEY, {"type": "object", "additionalProperties": KEY}]},
        },
    },
}


MODE = {
    "type": "object",
    "required": ["mode"],
    "properties": {"mode": {"type": "string", "enum": ["plain", "sealed"]}},
}


@router.put(
    "/keys",
    openapi_extra=takes(GIVEN),
    responses=gives(UNLOCKED, "not_found", "plain_scope", "sealed_scope:503", "wrong_key", "too_large"),
)
async def put_keys(asking: AskingDep, scope: str, body: BodyDep) -> Response:
    """Unlock a sealed scope: give the server its passphrase and user, or keys by audience.

    It takes an admin's token, or one of a device's role that is bound to no device. Keys join those that were given
    before. The answer comes once every op is folded; until then what is folded is not to be had.
    """
    async with asking.writing(scope, Right.KEYS) as work:
        number, given = work.reach.existing, _given(body)
    return answer(await asking.server.unlocking.unlock(asking.caller, number, given))


def _given(body: bytes) -> Given:
    """Raises too_large; invalid_request, without a word of what was sent."""
    if len(body) > MOST_BYTES:
        raise too_many()
    try:
        return Given.read(read_body(body))
    except Unreadable as error:
        raise unreadable(error) from None
    except Problem:
        raise Problem("invalid_request", "the body is not JSON", {"path": ""}) from None


@router.delete("/keys", responses=gives(LOCKED, "not_found", "plain_scope"))
async def delete_keys(asking: AskingDep, scope: str) -> Response:
    """Lock a scope: the server forgets its keys and removes everything that it opened. Ops stay as they are."""
    async with asking.reading(scope, Right.KEYS) as work:
        number = work.reach.existing
    return answer(await asking.server.unlocking.lock(asking.caller, number))


@router.put(
    "/mode",
    openapi_extra=takes(MODE),
    responses=gives({"mode": "sealed"}, "not_found", "plain_scope", "sealed_scope", "too_large"),
)
async def put_mode(asking: AskingDep, scope: str, body: BodyDep) -> Response:
    """Say whether a scope is plain or sealed, instead of its first op. It can be changed while the scope is empty."""
    try:
        mode = read_mode(read_body(body))
    except Unreadable as error:
        raise unreadable(error) from error
    async with asking.writing(scope, Right.ADMIN) as work:
        await set_mode(await work.pg(), work.reach.existing, mode)
    return answer({"mode": mode})
