"""Contexts as files: JSON lines of ops, or a checkpoint of the original kernel (stored-message.md §5, §11)."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from foldpoint.canonical import Json, Unreadable, canonical
from foldpoint.state import Record
from foldpoint.stored_message.checkpoint import decode_checkpoint, restore_checkpoint
from foldpoint.stored_message.ops import ContextOp, Move, Put, admit, read_op
from foldpoint.stored_message.shapes import read_document

#: What of a checkpoint is no message of a session.
_BESIDE = {"held_history": "it waits for results of the kernel's own calls", "knowledge": "knowledge is no message"}


class Imported(NamedTuple):
    """One op, where it came from, and why it is not taken, if it is not."""

    source: Json
    op: dict[str, Any] | None
    detail: str


def import_file(data: bytes) -> list[Imported]:
    """The ops of a file, in order: a checkpoint's messages as puts, or a line for an op. Raises Refused, Unreadable.

    A checkpoint is one JSON document, and is refused as a whole if it does not verify; what it holds beside messages is
    told of. So are lines that cannot be an op, a torn last one too; blank ones vanish. A second import gives the same
    sources.
    """
    if b'"logical_state"' in data and (document := _document(data)) is not None:
        return _messages_of(document)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise Unreadable("expected UTF-8", f"byte {error.start}") from error
    return [_line(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]


def _document(data: bytes) -> dict[str, Any] | None:
    try:
        value = read_document(data)
    except Unreadable:
        return None
    return value if isinstance(value, dict) and "logical_state" in value else None


def _messages_of(value: dict[str, Any]) -> list[Imported]:
    document = decode_checkpoint(value)
    context, whole = restore_checkpoint(document), document["checkpoint_digest"]
    name = whole.removeprefix("sha256:")[:16]
    found = []
    for pos, message in enumerate(context.messages()):
        op = admit({"op": "put", "message_id": f"{name}-{pos}", "pos": pos, "message": dict(message)})
        found.append(Imported({"checkpoint": whole, "pos": pos}, op, ""))
    counts = {"held_history": len(context.held), "knowledge": len(context.knowledge)}
    beside = [(kind, n) for kind, count in counts.items() for n in range(count)]
    return found + [Imported({"checkpoint": whole, kind: n}, None, f"not taken: {_BESIDE[kind]}") for kind, n in beside]


def _line(number: int, line: str) -> Imported:
    source: Json = {"line": number, "text": line}
    try:
        return Imported(source, admit(read_document(line.encode())), "")
    except Unreadable as error:
        return Imported(source, None, str(error))


def export_records(records: Iterable[Record]) -> Iterator[bytes]:
    """The ops of a session in their order, a line for each."""
    for record in records:
        if (op := read_op(record)) is not None:
            yield canonical(_body(op)) + b"\n"


def _body(op: ContextOp) -> dict[str, Any]:
    body = {name: value for name, value in op._asdict().items() if name not in ("id", "key")}
    return {"op": "put" if isinstance(op, Put) else "move" if isinstance(op, Move) else "remove", **body}
