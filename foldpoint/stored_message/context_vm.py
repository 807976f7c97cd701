"""The wire form of the context in a checkpoint (stored-message.md §5)."""

from typing import Any

from foldpoint.canonical import Json
from foldpoint.stored_message.message import BODY, MESSAGE, TOOL_CALLS
from foldpoint.stored_message.shapes import (
    anything,
    boolean,
    decimal_u64,
    defaulted,
    list_of,
    nullable,
    omittable,
    required,
    string,
    struct,
    u32,
    u64,
)

_TEXTS = defaulted(list_of(string), [])
_TEXT = defaulted(string, "")

_MEASUREMENT = struct(
    {
        "fingerprint": required(string),
        "tokens": required(u32),
        "source": required(anything),
        "confidence": required(string),
    }
)
_ITEM = struct(
    {
        "id": required(u64),
        "origin": required(string),
        "injected_turn": defaulted(u32, 0),
        "fidelity": omittable(string, "full"),
    }
)
_HANDLE = struct(
    {
        "handle_id": required(u32),
        "kind": required(string),
        "residency": required(string),
        "payload_ref": defaulted(nullable(string), None),
        "digest": defaulted(nullable(string), None),
        "original_size": defaulted(nullable(decimal_u64), None),
        "tokens": required(u32),
        "source": defaulted(nullable(string), None),
        "item": omittable(u64, 0),
    }
)
_SLOT = struct(
    {
        "key": defaulted(nullable(string), None),
        "role": required(string),
        "body": required(BODY),
        "tokens": required(u32),
        "pinned": required(boolean),
        "evict_at_boundary": required(boolean),
        "tool_calls": defaulted(TOOL_CALLS, []),
        "pending": omittable(nullable(MESSAGE)),
        "use_count": defaulted(u64, 0),
        "last_used_step": defaulted(nullable(u64), None),
        "staged": defaulted(boolean, False),
        "origin": omittable(nullable(string)),
        "lease": omittable(anything),
        "leaving": omittable(nullable(string)),
        "injected_turn": defaulted(u32, 0),
        "last_referenced_turn": omittable(nullable(u32)),
        "expanded": omittable(boolean, False),
        "paged_in_after_evict": omittable(boolean, False),
        "strong_refs": omittable(u64, 0),
        "lexical_refs": omittable(u64, 0),
    }
)
_TASK_STATE = struct(
    {
        "goal": _TEXT,
        "criteria": _TEXTS,
        "plan": defaulted(list_of(struct({"label": required(string), "done": required(boolean)})), []),
        "current_step": defaulted(nullable(u32), None),
        "progress": _TEXT,
        "scratchpad": _TEXT,
        "blocked_on": _TEXTS,
        "directives": _TEXTS,
        "preserved_refs": _TEXTS,
        "recent_actions": _TEXTS,
        "compression_log": defaulted(list_of(struct({"action": required(string), "summary": required(string)})), []),
        "compression_log_dropped": defaulted(decimal_u64, "0"),
    }
)
_LIST = list_of(anything)

#: What the page does not describe is carried through as it is.
CONTEXT_VM = struct(
    {
        "messages": defaulted(list_of(MESSAGE), []),
        "held_history": omittable(list_of(MESSAGE), []),
        "knowledge": defaulted(list_of(_SLOT), []),
        "handles": defaulted(list_of(_HANDLE), []),
        "next_handle_id": required(u32),
        "system_measurements": defaulted(list_of(_MEASUREMENT), []),
        "history_measurements": defaulted(list_of(_MEASUREMENT), []),
        "history_items": omittable(list_of(_ITEM), []),
        "last_item_id": omittable(u64, 0),
        "partition_tokens": required(
            struct({"system": required(u32), "knowledge": required(u32), "history": required(u32)})
        ),
        "history_len": required(u32),
        "frozen_history_len": defaulted(u32, 0),
        "task_state": required(_TASK_STATE),
        "signals": _TEXTS,
        "last_activity_ms": required(decimal_u64),
        "last_compact_ms": defaulted(nullable(decimal_u64), None),
        "knowledge_reference_step": defaulted(u64, 0),
        "knowledge_budget_warned": defaulted(boolean, False),
        "prefix_sent": defaulted(boolean, False),
        "cache_invalidated_tokens": defaulted(u64, 0),
        "evicted_knowledge_keys": omittable(list_of(string), []),
        "knowledge_regret": defaulted(u32, 0),
        "knowledge_wasted_tokens": defaulted(u64, 0),
        "recall_top_k": omittable(nullable(u32)),
        "recall_due": omittable(boolean, False),
        "dependency_bodies": omittable(anything, {}),
        "pending_payload_loads": defaulted(_LIST, []),
        "active_skills": defaulted(_LIST, []),
        "retired_items": omittable(_LIST, []),
        "item_turn": omittable(u32, 0),
        "history_tally": omittable(_LIST, []),
        "retired_history": omittable(_LIST, []),
        "retired_history_omitted": omittable(u32, 0),
        "last_request_estimate": omittable(u32, 0),
        "estimate_samples": omittable(_LIST, []),
        "item_replays": omittable(_LIST, []),
    }
)


def decode_context_vm(value: Json, path: str = "context_vm") -> dict[str, Any]:
    """Raises Malformed."""
    vm: dict[str, Any] = CONTEXT_VM(value, path)
    return vm


def empty_context_vm() -> dict[str, Any]:
    """The context of an operation that has just been configured."""
    return decode_context_vm(
        {
            "next_handle_id": 0,
            "partition_tokens": {"system": 0, "knowledge": 0, "history": 0},
            "history_len": 0,
            "task_state": {},
            "last_activity_ms": "0",
        }
    )
