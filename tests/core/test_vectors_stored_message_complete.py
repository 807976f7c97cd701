"""Every vector of stored messages is run by a test or listed with the reason why not."""

from importlib import import_module
from pathlib import Path

from tests.fixtures.stored_message_vectors import DEVIATIONS, NOT_COMPARED, ROOT, TOKENIZER, USED, vector_file

for _module in Path(__file__).parent.glob("test_vectors_stored_message*.py"):
    import_module(f"tests.core.{_module.stem}")

#: The keys of cases that tests compare, by the kind of their file.
COMPARED = {
    "decode": {"input", "ok", "normalized", "canonical", "digest", "error"},
    "restore": {"context", "max_context_tokens", "decode", "assemble", "restore", "full_restore"},
    "checkpoint": {
        "edits",
        "document",
        "ok",
        "code",
        "ack_token",
        "state_digest",
        "tail_digest",
        "checkpoint_digest",
    },
    "session": {"steps"},
    "context-merge": {"ops", "expect"},
}
#: The same for the steps of runs and for what merged ops are expected to give.
COMPARED_WITHIN = {
    "steps": {
        "after",
        "handles",
        "held_history",
        "history_items",
        "history_len",
        "knowledge",
        "messages",
        "partition_tokens",
        "restores",
    },
    "expect": {"messages", "order", "partition_tokens", "render", "restore_ok", "statuses"},
}


def test_every_file_is_run() -> None:
    assert {file.name for file in ROOT.glob("*.json")} == USED


def test_every_key_of_every_case_is_compared_or_listed() -> None:
    for name in USED:
        vectors = vector_file(name)
        for case in vectors["cases"]:
            assert case.keys() - COMPARED[vectors["kind"]] - NOT_COMPARED.keys() == set(), (name, case["name"])
            for part in [*case.get("steps", []), *([case["expect"]] if "expect" in case else [])]:
                within = COMPARED_WITHIN["steps" if "after" in part else "expect"]
                assert part.keys() - within - NOT_COMPARED.keys() == set(), (name, case["name"])


def test_only_existing_cases_are_listed() -> None:
    for name, case_name in [*DEVIATIONS, *TOKENIZER]:
        assert [case["name"] for case in vector_file(name)["cases"]].count(case_name) == 1, (name, case_name)
