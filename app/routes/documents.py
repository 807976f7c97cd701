"""What the OpenAPI document says of bodies that go by as bytes."""

from typing import Any

HLC: dict[str, Any] = {
    "type": "object",
    "required": ["wall_ms", "counter", "device_id"],
    "properties": {
        "wall_ms": {"type": "integer", "minimum": 0},
        "counter": {"type": "integer", "minimum": 0, "maximum": 2**32 - 1},
        "device_id": {"type": "string"},
    },
}
OP: dict[str, Any] = {
    "type": "object",
    "required": ["op_id", "hlc", "device_id", "seq", "scope", "surface", "payload"],
    "properties": {
        "op_id": {"type": "string", "pattern": "^op-[0-9a-f]{32}$"},
        "hlc": HLC,
        "device_id": {"type": "string"},
        "seq": {"type": "integer", "minimum": 0},
        "prev": {"type": "string", "nullable": True},
        "scope": {"description": '"personal" or {"shared": {"org": name}}'},
        "surface": {"description": 'a name, or {"registry": {"kind": name}}'},
        "payload": {"description": "any JSON"},
    },
}
FRONTIER: dict[str, Any] = {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}}
CHECKPOINT: dict[str, Any] = {
    "type": "object",
    "required": ["frontier", "scopes", "state_hash", "checkpoint_hash", "state"],
    "properties": {
        "frontier": {"type": "object"},
        "scopes": {"type": "array", "items": {"type": "string"}},
        "state_hash": {"type": "string"},
        "checkpoint_hash": {"type": "string"},
        "state": {"type": "object"},
    },
}
OPS: dict[str, Any] = {"type": "array", "items": OP}

STAMP = {"wall_ms": 1750000000000, "counter": 0, "device_id": "laptop"}
RECORD = {"op_id": "op-4b7a595d61b19b8e77fd5397dc402e74", "hlc": STAMP, "payload": {"id": "f1"}}
LEASE = {"agent_id": "travel", "holder": "laptop", "epoch": 3, "expires_at_ms": 1750000030000}
RUN = {"status": "committed", "record": RECORD, "intent": None}


def takes(schema: dict[str, Any]) -> dict[str, Any]:
    """The `openapi_extra` of a route whose body has this schema."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def gives(example: Any) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route that answers like this, and of any route with a problem."""
    return {
        200: {"content": {"application/json": {"example": example}}},
        "default": {
            "description": "A problem with a stable code",
            "content": {"application/problem+json": {"example": PROBLEM}},
        },
    }


PROBLEM = {
    "type": "about:blank#forbidden",
    "title": "forbidden",
    "status": 403,
    "code": "forbidden",
    "detail": "this token may not use this scope",
}
