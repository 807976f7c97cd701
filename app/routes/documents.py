"""What the OpenAPI document says of bodies that go by as bytes."""

from dataclasses import fields
from typing import Any

from app.problems import CODES, Problem
from foldpoint.canonical import U64_MAX
from foldpoint.seal.wraps import WrappedOrgKey

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
WRAPPED: dict[str, Any] = {
    "type": "object",
    "required": [field.name for field in fields(WrappedOrgKey)],
    "properties": {
        **{field.name: {"type": "string"} for field in fields(WrappedOrgKey)},
        "epoch": {"type": "integer", "minimum": 0, "maximum": U64_MAX},
        "envelope": {"description": "any JSON"},
    },
}
PUBLIC_HEX: dict[str, Any] = {
    "type": "object",
    "required": ["public_hex"],
    "properties": {"public_hex": {"type": "string", "description": "of an X25519 public key"}},
}
OPS: dict[str, Any] = {"type": "array", "items": OP}

STAMP = {"wall_ms": 1750000000000, "counter": 0, "device_id": "laptop"}
RECORD = {"op_id": "op-4b7a595d61b19b8e77fd5397dc402e74", "hlc": STAMP, "payload": {"id": "f1"}}
EMITTED = {
    "op_id": RECORD["op_id"],
    "hlc": STAMP,
    "device_id": "laptop",
    "seq": 0,
    "prev": None,
    "scope": "personal",
    "surface": "knowledge",
    "payload": RECORD["payload"],
}
ENTRY = {"device_id": "laptop", "added_at": STAMP, "last_seen_ms": 1750000000000, "acked": STAMP, "status": "active"}
LATEST = {
    "checkpoint_hash": "ckpt-0e5c…",
    "frontier": {"laptop": {"seq": 0, "hlc": STAMP, "head": RECORD["op_id"]}},
    "scopes": ["personal"],
    "state": {"intents": {}, "logs": {"knowledge": {"id:f1": RECORD}}, "registries": {}},
    "state_hash": "state-2a8b…",
}
WRAP = {
    "car_wrap": "org-key-wrap/v2",
    "org": "acme",
    "epoch": 3,
    "recipient": "acc_ada",
    "publisher": "acc_grace",
    "ephemeral_pub": "2fe5…",
    "recipient_pub": "8520…",
    "envelope": {"car_enc": "chacha20poly1305", "nonce": "07…", "ct": "d1…"},
    "signature": "c6…",
}
PUBLIC_KEY = {"account_id": "acc_ada", "public_hex": "8520…"}
LEASE = {"agent_id": "travel", "holder": "laptop", "epoch": 3, "expires_at_ms": 1750000030000}
RUN = {"status": "committed", "record": RECORD, "intent": None}


def takes(schema: dict[str, Any]) -> dict[str, Any]:
    """The `openapi_extra` of a route whose body has this schema."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


#: What any call may be refused with.
ALWAYS = ("unauthorized", "forbidden", "invalid_request", "unavailable", "internal")
#: What a call that goes on from a cursor may be refused with.
CURSORS = ("invalid_cursor", "cursor_gone", "server_restored")

#: What a question about folded ops may be refused with.
FOLDED = ("not_found", "sealed_scope:503")

#: What a push may be refused with as a whole, and what for one of its ops.
PUSH = ("not_found", "sealed_scope:503", "reserved_device", "too_many_ops", "too_large")
REFUSED_OPS = (
    "chain_fork",
    "gap",
    "chain_broken",
    "foreign_ops",
    "unreadable_op",
    "clock_skew",
    "plain_scope",
    "sealed_scope",
)

Responses = dict[int | str, dict[str, Any]]


class Either(dict[str, Any]):
    """Examples by name, of a route that answers in more than one shape."""


def gives(example: Any, *codes: str, schema: dict[str, Any] | None = None) -> Responses:
    """The `responses` of a route that answers like this, and may be refused with these codes beside those of any."""
    return says(example, schema) | refuses(*ALWAYS, *codes)


def does(*codes: str) -> Responses:
    """As `gives`, of a route that answers with an empty body."""
    return {204: {"description": "Done"}} | refuses(*ALWAYS, *codes)


def says(example: Any, schema: dict[str, Any] | None = None) -> Responses:
    """The answer alone."""
    shown = {"example": example}
    if isinstance(example, Either):
        shown = {"examples": {name: {"value": value} for name, value in example.items()}}
    content = shown | ({} if schema is None else {"schema": schema})
    return {200: {"description": "Done", "content": {"application/json": content}}}


def refuses(*codes: str) -> Responses:
    """The problems that a route may answer with, by status; `code:status` is a code with a status not its own."""
    by_status: dict[int, dict[str, Any]] = {}
    for text in codes:
        code, _, status = text.partition(":")
        problem = Problem(code, "What is wrong, in a sentence.", status=int(status or 0))
        by_status.setdefault(problem.status, {})[code] = {"value": problem.body()}
    return {
        status: {
            "description": " or ".join(f"`{code}`" for code in examples),
            "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}, "examples": examples}},
        }
        for status, examples in by_status.items()
    }


def with_problem(document: dict[str, Any]) -> dict[str, Any]:
    """The OpenAPI document with the schema that every refusal points to, and without the framework's own."""
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schemas["Problem"] = {
        "type": "object",
        "required": ["type", "title", "status", "code", "detail"],
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "code": {"type": "string", "enum": sorted(CODES), "description": "what a program decides by"},
            "detail": {"type": "string", "description": "what a person reads"},
            "advice": {"type": "string", "description": "what the client can do"},
        },
        "additionalProperties": {"description": "the facts: what is expected and what was found"},
    }
    return document


PROBLEM = "application/problem+json"
