"""What keeps a scope small: garbage collection and retention."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from app.problems import Problem
from app.routes.asking import AskingDep, BodyDep, answer, read_body
from app.routes.documents import gives, takes
from app.services.access import Right
from app.services.collection import policies
from app.services.collection.upkeep import collect_and_retain
from app.sql import scopes
from foldpoint.canonical import U64_MAX, canonical
from foldpoint.slug import slug

router = APIRouter(prefix="/v1/scopes/{scope}", tags=["upkeep"])

POLICY = {
    "rules": {"conversation": {"last_n": {"n": 1000}}, "trajectory": {"max_age_ms": {"max_age_ms": 2592000000}}},
    "default_rule": "keep_all",
}
TRIM = {"policy": POLICY, "as_of_ms": 1750000000000, "dropped": 12, "tombstoned": 3, "done": True}
POLICY_SCHEMA = {
    "type": "object",
    "nullable": True,
    "required": ["rules", "default_rule"],
    "properties": {
        "rules": {"type": "object", "description": "surface name to rule"},
        "default_rule": {"description": "the rule of every other log"},
    },
    "example": POLICY,
}


@router.post("/gc", responses=gives({"dropped": {"laptop": 120}, "retention": None}, "not_found"))
async def gc(
    asking: AskingDep,
    scope: str,
    as_of_ms: Annotated[int | None, Query(ge=0, le=U64_MAX, description="What ages of retention count from.")] = None,
) -> Response:
    """Drop the ops that every active device has acknowledged, making a checkpoint that covers them if none does.

    Where a retention policy is set, the records below the floor are then trimmed by it; ages count from the newest
    timestamp among them unless `as_of_ms` says otherwise.
    """
    async with asking.writing(scope, Right.ADMIN) as work:
        number = work.reach.existing
    async with asking.server.whole.take(slug(scope)):
        return answer(await collect_and_retain(asking.server.patient, number, as_of_ms, asking.caller))


@router.get("/retention", responses=gives({"policy": POLICY, "last": TRIM}, "not_found"))
async def retention_of(asking: AskingDep, scope: str) -> Response:
    """The policy that is set, null without one, and what retention did last."""
    async with asking.reading(scope, Right.ADMIN) as work:
        return answer(await policies.report(await work.pg(), work.reach.existing))


@router.put(
    "/retention",
    openapi_extra=takes(POLICY_SCHEMA),
    responses=gives({"policy": POLICY, "last": None}, "not_found", "sealed_scope", "too_large"),
)
async def set_retention(asking: AskingDep, scope: str, body: BodyDep) -> Response:
    """Set the policy, or none with `null`. The next GC applies it, to what is below the floor.

    From then on state hashes differ from those of devices that keep everything, and their checkpoints are refused;
    time travel below the trimmed checkpoint is 410. Committed runs, intents and registries are never trimmed.
    """
    value = read_body(body)
    policy = None if value is None else canonical(policies.read_valid_policy(value).to_json()).decode()
    async with asking.writing(scope, Right.ADMIN) as work:
        if work.reach.mode == "sealed":
            raise Problem("sealed_scope", "the records of a sealed scope are its devices' to trim")
        pg = await work.pg()
        await scopes.put_retention(pg, work.reach.existing, policy)
        return answer(await policies.report(pg, work.reach.existing))
