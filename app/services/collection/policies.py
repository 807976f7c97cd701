"""Retention policies as an admin sets and sees them."""

from typing import Any

import orjson

from app.problems import Problem
from app.sql import scopes, trims
from app.sql.transactions import Driver
from app.sql.trims import Trim
from foldpoint.canonical import Json, Unreadable
from foldpoint.retention import KeepAll, Policy, RetentionError, read_policy
from foldpoint.surfaces import BY_NAME, Tier


def read_valid_policy(value: Json) -> Policy:
    """A policy whose every rule is of a log and can be applied. Raises invalid_request."""
    try:
        policy = read_policy(value)
        for tag, rule in policy.rules.items():
            if rule != KeepAll() and (tag not in BY_NAME or BY_NAME[tag].tier is Tier.REGISTRY):
                raise Unreadable("there is no log of this surface", f"rules.{tag}")
        policy.check(routed=True)
    except Unreadable as error:
        raise Problem("invalid_request", str(error), {"path": error.path}) from error
    except RetentionError as error:
        raise Problem("invalid_request", f"{error}: no rule may trim this surface", {"path": "policy"}) from error
    return policy


async def report(pg: Driver, scope: int) -> dict[str, Any]:
    """The policy that is set, and what retention did last."""
    policy = await scopes.retention(pg, scope)
    last = await trims.last(pg, scope)
    return {"policy": policy and orjson.loads(policy), "last": last and told(last)}


def told(trim: Trim) -> dict[str, Any]:
    return {
        "policy": orjson.loads(trim.policy),
        "as_of_ms": trim.as_of_ms,
        "dropped": trim.dropped,
        "tombstoned": trim.tombstoned,
        "done": trim.done,
    }
