"""The ops of a journal and the records in them (journal.md §1.3–1.6)."""

from typing import Any

from foldpoint.canonical import Json, Unreadable
from foldpoint.journal.shapes import (
    Field,
    Shape,
    anything,
    boolean,
    double,
    i64,
    items,
    one_of,
    read_shape,
    record,
    records,
    text,
    texts_by_name,
    u8,
    u32,
    u64,
)

#: `{"op": kind, …}` with all fields of its kind in the writer's order, as `read_journal_op` gives it.
JournalOp = dict[str, Any]

QUEUES = ("steer", "follow_up")

_FUNCTION: Shape = (Field("name", text), Field("arguments", text))
_TOOL_CALL: Shape = (Field("id", text), Field("type", text, "function"), record("function", _FUNCTION))

ROLE = Field("role", one_of("system", "user", "assistant", "tool"))
CONTENT_PARTS = Field("content_parts", items(anything), None, omit=True)
#: What a message has on every wire, in the writer's order.
CALLS: Shape = (
    records("tool_calls", _TOOL_CALL, None, omit=True),
    Field("tool_call_id", text, None, omit=True),
    Field("name", text, None, omit=True),
)
#: The names of a Turn's fields that the fold drops (§1.4).
FRAMING: Shape = (Field("supercode_turn", u8), Field("ts", text))
_TURN: Shape = (
    *FRAMING,
    ROLE,
    Field("content", text, None, omit=True),
    CONTENT_PARTS,
    *CALLS,
    Field("metadata", texts_by_name, {}, omit=True),
)
_STEP: Shape = (Field("step", text), Field("status", text))
_MODEL_CHANGE: Shape = (
    Field("turn", u64),
    Field("from_model", text),
    Field("to_model", text),
    Field("reasoning_filtered", boolean, default=False),
    Field("reasoning_artifacts_filtered", u64, 0),
    Field("timestamp_ms", i64, 0),
    Field("reason", text, None, omit=True),
)
_USAGE: Shape = (
    Field("turn", u64),
    Field("model", text),
    Field("prompt_tokens", u64, 0),
    Field("completion_tokens", u64, 0),
    Field("total_tokens", u64, 0),
    Field("cached_tokens", u64, None),
    Field("cost_usd", double, None, omit=True),
    Field("served_model", text, None, omit=True),
    Field("timestamp_ms", i64, 0),
)
_QUEUE = Field("queue", one_of(*QUEUES))

KINDS: dict[str, Shape] = {
    "message": (record("message", _TURN),),
    "rewind": (Field("to", u64),),
    "unrewind": (),
    "enqueue": (_QUEUE, Field("text", text)),
    "dequeue": (_QUEUE, Field("count", u64)),
    "plan": (records("steps", _STEP),),
    "rename": (Field("from", text), Field("to", text)),
    "checkpoint": (Field("messages", u64),),
    "model_change": (record("record", _MODEL_CHANGE),),
    "usage": (record("record", _USAGE),),
    "upgrade": (Field("from_version", u32), Field("to_version", u32), Field("original", text)),
}
VERSION = 1


def read_journal_op(value: Json, path: str = "") -> JournalOp:
    """Read an op strictly; unknown fields are dropped. Raises Unreadable, at a path that begins with `path`."""
    if not isinstance(value, dict) or not isinstance(kind := value.get("op"), str) or kind not in KINDS:
        raise Unreadable("unknown op", path + "op")
    version = value.get("supercode_journal", VERSION)
    if type(version) is not int or version != VERSION:
        raise Unreadable("another version", path + "supercode_journal")
    return {"op": kind, **read_shape(KINDS[kind], value, path)}
