"""The state of an operation that has just been configured, around any context (stored-message.md §5).

A session on the server knows nothing of the operations that use its context, so its checkpoints hold the kernel's
default configuration and no work: a host configures the restored operation as its own.
"""

from typing import Any

from foldpoint.canonical import Json

_CONFIG: dict[str, Json] = {
    "budget_grant": None,
    "context_policy": {
        "collapse_old_assistant_narration": True,
        "idle_micro_compact_minutes": 60,
        "knowledge_budget_ppm": 250_000,
        "preserve_recent_turns": 2,
        "pressure_thresholds_ppm": {
            "snip": 700_000,
            "micro": 800_000,
            "collapse": 900_000,
            "auto": 950_000,
            "renewal": 980_000,
        },
        "prompt_budget": {"output_reserve_tokens": 0, "prompt_overhead_tokens": 0, "safety_margin_tokens": 0},
        "renewal_carryover_ppm": 50_000,
        "target_after_compress_ppm": 650_000,
    },
    "execution_policy": {
        "criteria_gate_enabled": True,
        "entropy_watch": {
            "cooldown_turns": 4,
            "enabled": False,
            "hysteresis_ppm": 100_000,
            "notify_model": False,
            "threshold_ppm": 650_000,
        },
        "max_context_tokens": 128_000,
        "max_total_tokens": "1000000",
        "max_turns": 12,
        "max_wall_ms": None,
        "repeat_fuse": {"deny_after": 5, "enabled": True, "terminate_after": 8},
    },
    "feature_policy": {
        "knowledge_enabled": False,
        "memory_enabled": False,
        "plan_tool_enabled": False,
        "stable_core_tool_ids": [],
    },
    "governance_policy": {
        "constraints": [],
        "default_action": "allow",
        "rate_limits": [],
        "rules": [],
        "vetoed_tools": [],
    },
    "host_effect_support": {"supported": ["call_provider", "execute_tools", "load_payload"]},
    "kernel_limits": {
        "collection_limits": dict.fromkeys(
            (
                "capability_grants",
                "governance_rules",
                "initial_messages",
                "knowledge_entries",
                "skill_catalog",
                "tool_catalog",
            ),
            65_536,
        ),
        "max_collection_entries": 65_536,
        "max_input_bytes": 16_777_216,
        "max_json_depth": 64,
    },
    "memory_access": None,
    "memory_policy": {
        "max_content_bytes": 10_000,
        "max_name_length": 100,
        "promotion_recall_threshold": None,
        "retrieval_top_k": 5,
        "stale_warning_days": 2,
        "validation_enabled": True,
    },
    "payload_policy": {"inline_threshold_bytes": 51_200, "preview_bytes": 2_048},
    "recovery_policy": {
        "output_recovery_attempts": 1,
        "provider_recovery_attempts": 1,
        "tail_bounds": {
            "hard_bytes": "16777216",
            "hard_records": "2048",
            "soft_bytes": "4194304",
            "soft_records": "512",
        },
    },
    "resource_quota": {},
    "scheduler_policy": {
        "age_weight": 1_000,
        "budget_pressure_weight": 0,
        "critical_path_weight": 1_000_000,
        "deadline_weight": 0,
        "fanout_weight": 10_000,
        "process_priority_weight": 0,
        "resource_pressure_weight": 0,
        "token_cost_weight": 1,
    },
    "signal_policy": {"deadline_escalation": False, "queue_max": 64, "ttl_ms": None},
    "skill_catalog": [],
    "tool_catalog": [],
    "verification_contracts": [],
}

_ROOT_TASK: dict[str, Json] = {
    "capability_ids": [],
    "child_budget_remaining": None,
    "lifecycle": "ready",
    "parent_task_id": None,
    "process": None,
    "task_id": "root",
    "termination": None,
    "tokens_used": "0",
    "turns_used": 0,
}


def blank_state(context_vm: dict[str, Any]) -> dict[str, Any]:
    """The whole logical state with this context."""
    return {
        "transition": {
            "accepted_cancellation": None,
            "accepted_inputs": [],
            "focus": None,
            "last_observed_at_ms": "0",
            "launch_tokens": [],
            "lifecycle": "configured",
            "pending_effects": [],
            "resolved_config": _CONFIG,
            "resolved_effects": [],
            "root_kind": None,
            "terminal": None,
        },
        "syscall": {
            "authored_memory_queries": [],
            "authored_memory_writes": [],
            "consumed_call_ids": [],
            "live_config": _CONFIG,
            "memory_write_window_ms": [],
            "policy_revision": "0",
            "provider_calls": [],
        },
        "scheduler": {
            "advertised_tool_ids": None,
            "attempts": [],
            "entropy": {"disarmed": False, "last_alert_turn": None, "rollbacks_pending": 0, "window": []},
            "milestone": None,
            "queued_signals": [],
            "rounds_completed": 0,
            "run_spec": None,
            "signal_dedupe_keys": [],
            "started_at_ms": None,
            "subagents_spawned": 0,
            "tasks": [_ROOT_TASK],
            "total_tokens": "0",
            "turn": 0,
            "wall_budget_ms": None,
            "workflow": None,
        },
        "context_vm": context_vm,
    }
