"""The checkpoint document that the original kernel restores (stored-message.md §5, §6.7)."""

from collections.abc import Iterable, Mapping
from typing import Any

from foldpoint.canonical import Json
from foldpoint.stored_message.blank import blank_state
from foldpoint.stored_message.content import check_body
from foldpoint.stored_message.context import Context, context_of, restore_context
from foldpoint.stored_message.context_vm import CONTEXT_VM
from foldpoint.stored_message.digest import canonical_bytes, digest
from foldpoint.stored_message.message import StoredMessage
from foldpoint.stored_message.refusals import Corrupted, Incompatible
from foldpoint.stored_message.shapes import (
    Field,
    anything,
    decimal_u64,
    list_of,
    read_document,
    required,
    string,
    struct,
)
from foldpoint.stored_message.writing import settled_message

#: A checkpoint in its normal form. What is in `transition`, `syscall` and `scheduler` is carried through as it is.
Document = dict[str, Any]

_DIGESTS = ("state_digest", "tail_digest", "checkpoint_digest")
_HEADER: dict[str, Field] = {
    "operation_id": required(string),
    "genesis_digest": required(string),
    "base_step_seq": required(decimal_u64),
    "base_record_digest": required(string),
    "through_step_seq": required(decimal_u64),
    "covered_transaction_head_digest": required(string),
    "logical_state": required(
        struct(
            {
                "transition": required(anything),
                "syscall": required(anything),
                "scheduler": required(anything),
                "context_vm": required(CONTEXT_VM),
            }
        )
    ),
    "tail_inputs": required(
        list_of(
            struct({"step_seq": required(decimal_u64), "record_digest": required(string), "input": required(anything)})
        )
    ),
}
_CHECKPOINT = struct({**_HEADER, **dict.fromkeys(_DIGESTS, required(string))})
_DRAFT = struct(_HEADER)


def session_checkpoint(session: str, messages: Iterable[StoredMessage]) -> Document:
    """The checkpoint of an operation that has done nothing yet and holds these messages.

    References become the result they preview: the handles of their bodies belong to hosts that the server does not
    know. Raises Incompatible if a partition's tokens leave u32.
    """
    return blank_checkpoint(session, context_of(settled_message(message) for message in messages).to_vm())


def blank_checkpoint(name: str, context_vm: dict[str, Any]) -> Document:
    """The checkpoint of an operation that was only configured, named after what its context is of. Raises Refused."""
    genesis = digest({"context": name})
    return assemble(
        {
            "operation_id": "context-" + genesis.removeprefix("sha256:"),
            "genesis_digest": genesis,
            "base_step_seq": "0",
            "base_record_digest": genesis,
            "through_step_seq": "0",
            "covered_transaction_head_digest": genesis,
            "logical_state": blank_state(context_vm),
            "tail_inputs": [],
        }
    )


def assemble(draft: Mapping[str, Json]) -> Document:
    """A checkpoint from all of its header but the digests. Raises Refused."""
    document: Document = _DRAFT(dict(draft), "")
    check_bodies(document["logical_state"]["context_vm"])
    _check_tail(document)
    return {**document, **_computed_digests(document)}


def read_checkpoint(text: bytes) -> Document:
    """Raises Refused for a text that is no checkpoint or does not verify."""
    return decode_checkpoint(read_document(text))


def decode_checkpoint(value: Json) -> Document:
    document: Document = _CHECKPOINT(value, "")
    check_bodies(document["logical_state"]["context_vm"])
    _check_tail(document)
    for name, computed in _computed_digests(document).items():
        if document[name] != computed:
            raise Corrupted(f"recomputed {computed}", name)
    return document


def restore_checkpoint(document: Document) -> Context:
    """The context of a verified checkpoint, which must write back as it was read. Raises Refused."""
    vm = document["logical_state"]["context_vm"]
    context = restore_context(vm)
    if canonical_bytes(context.to_vm()) != canonical_bytes(vm):
        raise Corrupted("the restored context is written otherwise", "logical_state.context_vm")
    return context


def ack_token(document: Document) -> str:
    return "{operation_id}:checkpoint:{through_step_seq}:{checkpoint_digest}".format_map(document)


def check_bodies(context_vm: Mapping[str, Any]) -> None:
    """The assemble gate, which does not look at held messages. Raises Incompatible."""
    slots = context_vm["knowledge"]
    for holder in [*context_vm["messages"], *slots, *(slot["pending"] for slot in slots if "pending" in slot)]:
        check_body(holder["body"])


def _check_tail(document: Document) -> None:
    """The tail holds the steps after the base, each once, up to the covered one."""
    base, through = int(document["base_step_seq"]), int(document["through_step_seq"])
    tail = document["tail_inputs"]
    steps = [int(entry["step_seq"]) for entry in tail]
    if len(steps) != through - base or any(step != base + i for i, step in enumerate(steps, 1)):
        raise Corrupted("the tail does not hold the steps after the base", "tail_inputs")
    end = tail[-1]["record_digest"] if tail else document["base_record_digest"]
    if end != document["covered_transaction_head_digest"]:
        raise Corrupted("the tail does not end at the covered head", "covered_transaction_head_digest")
    if any(_operation_of(entry) != document["operation_id"] for entry in tail):
        raise Incompatible("the tail holds an input of another operation", "tail_inputs")


def _operation_of(entry: Mapping[str, Any]) -> Json:
    operation: Json = entry["input"].get("operation_id") if isinstance(entry["input"], dict) else None
    return operation


def _computed_digests(document: Document) -> dict[str, str]:
    parts = {
        "state_digest": digest(document["logical_state"]),
        "tail_digest": digest(document["tail_inputs"]),
    }
    header = {name: document[name] for name in _HEADER}
    return {**parts, "checkpoint_digest": digest({**header, **parts})}
