"""The device wire: the org-key directory (car-sync.md §12.3, §13b)."""

from fastapi import APIRouter, Response

from app.routes.asking import AskingDep, BodyDep, Streamed, answer
from app.routes.documents import PUBLIC_HEX, PUBLIC_KEY, WRAP, WRAPPED, does, gives, takes
from app.services.access import Right
from app.services.keys import org_keys
from app.sql.org_keys import public_keys
from foldpoint.slug import slug

router = APIRouter(prefix="/sync/{scope}/org-keys", tags=["device wire"])

WRITES = ("not_found", "too_large")


@router.put("/wrapped", status_code=204, openapi_extra=takes(WRAPPED), responses=does(*WRITES))
async def publish_wrapped(asking: AskingDep, scope: str, body: BodyDep) -> Response:
    """Publish an org's key, wrapped for a member. It takes a granter's token or an admin's.

    It is kept as it is sent, in place of an earlier one for the same recipient at the same epoch.
    """
    async with asking.writing(scope, Right.READ) as work:
        settings = asking.server.settings
        await org_keys.publish_wrap(work.connection, asking.caller, work.reach.existing, body, settings)
    return Response(status_code=204)


@router.get("/wrapped/{recipient}", responses=gives([WRAP], "not_found", schema={"type": "array", "items": WRAPPED}))
async def wrapped_for(asking: AskingDep, scope: str, recipient: str) -> Response:
    """Every wrap for a recipient, newest epoch first."""
    async with asking.reading(scope) as work:
        number = work.reach.scope
    if number is None:
        return answer([])
    return Streamed(asking, org_keys.wraps_text(asking.server.engine, number, slug(recipient)))


@router.put("/pubkeys/{account}", status_code=204, openapi_extra=takes(PUBLIC_HEX), responses=does(*WRITES))
async def publish_key(asking: AskingDep, scope: str, account: str, body: BodyDep) -> Response:
    """Publish an account's public key, for which granters wrap. It takes the account's own token or an admin's."""
    async with asking.writing(scope, Right.READ) as work:
        await org_keys.publish_key(work.connection, asking.caller, work.reach.existing, account, body)
    return Response(status_code=204)


@router.get("/pubkeys", responses=gives([PUBLIC_KEY], "not_found"))
async def published_keys(asking: AskingDep, scope: str) -> Response:
    """Every account's public key, by account."""
    async with asking.reading(scope) as work:
        keys = await public_keys(work.connection, work.reach.scope) if work.reach.scope else []
    return answer([{"account_id": account, "public_hex": public_hex} for account, public_hex in keys])
