"""Hosted writes into contexts, and whole files of them (stored-message.md §11)."""

import secrets
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import orjson

from app.problems import Problem
from app.services.access import Caller
from app.services.hosting import Hold, Hosting, Plan
from app.services.projections.contexts import FOLD
from app.services.projections.writes import Payload, StreamWrite, by_id, drafts_of, storing
from app.services.pushing.arrivals import off_loop
from app.sql import entries
from app.sql.entries import StreamKey
from foldpoint.canonical import Json, Unreadable
from foldpoint.hosted import Draft
from foldpoint.projections import CONTEXT
from foldpoint.stored_message.files import Imported
from foldpoint.stored_message.ops import admit, write_payload
from foldpoint.stored_message.refusals import Refused
from foldpoint.stored_message.session import SessionContext

#: Ops of a file that one transaction stores, and about how many bytes.
STEP, STEP_BYTES = 1_000, 4 * 1024 * 1024
#: Lines of a report.
MOST_TOLD = 1_000


class Target(NamedTuple):
    """Whose ops, on which session."""

    writer: str
    session: str


def refused(error: Unreadable, path: str) -> Problem:
    """The problem of an op that a gate does not let pass; `gate` is the original kernel's code."""
    where = ".".join(part for part in (path, error.path) if part)
    facts = {"path": where} | ({"gate": error.code} if isinstance(error, Refused) else {})
    return Problem("invalid_request", error.detail, facts)


def read_ops(value: Json) -> list[dict[str, Any]]:
    """The ops of a hosted call. Raises Problem, with the path of what is wrong and the gate that refuses it."""
    if not isinstance(value, list) or not value:
        raise Problem("invalid_request", "expected a list of ops", {"path": "ops"})
    ops = []
    for index, body in enumerate(value):
        try:
            ops.append(admit(body))
        except Unreadable as error:
            raise refused(error, f"ops[{index}]") from error
    return ops


class Appending(StreamWrite[SessionContext]):
    """One call that writes ops, none of them on a message that was removed."""

    fold = FOLD

    def plan(self, target: Target, ops: Sequence[dict[str, Any]]) -> Plan:
        """What it would do under the scope's lock. That raises Problem."""
        payloads = [write_payload(*target, op) for op in ops]
        self.stream = target.session

        async def plan(hold: Hold) -> list[Draft]:
            _refuse_removed(ops, await self.now(hold))
            stream = StreamKey.named(CONTEXT, target.session)
            taken = await entries.known(hold.pg, hold.where.scope, stream, by_id(payloads))
            written = []
            for op, payload in zip(ops, payloads, strict=True):
                name = str(payload["id"])
                source = {"nonce": secrets.token_hex(8)}
                written.append(write_payload(*target, op, source) if name in taken else payload)
                taken.add(name)
            return drafts_of(CONTEXT, written)

        return plan


def _refuse_removed(ops: Sequence[dict[str, Any]], context: SessionContext) -> None:
    removed = set(context.removed)
    for index, op in enumerate(ops):
        if op["op"] == "remove":
            removed.add(op["message_id"])
        elif op["message_id"] in removed:
            detail = f"message {op['message_id']!r} was removed, and ids are never used again"
            raise Problem("invalid_request", detail, {"path": f"ops[{index}].message_id"})


async def import_ops(
    hosting: Hosting, caller: Caller, scope: str, target: Target, size: int, found: list[Imported]
) -> Any:
    """Store what a session does not have yet of a file of so many bytes, step by step.

    What a retry finds there is a duplicate. Raises Problem, which says how far it came.
    """
    skipped = [{**_place(one.source), "detail": one.detail} for one in found if one.op is None]
    report: dict[str, Any] = {"stored": 0, "duplicate": 0, "skipped": len(skipped), "report": skipped[:MOST_TOLD]}
    payloads = await off_loop(size, _payloads, target, found)
    most = min(STEP, hosting.settings.max_ops_per_request)
    for step in _steps(payloads, most):
        try:
            written = await hosting.write(caller, scope, storing(CONTEXT, target.session, target.writer, step, size))
        except Problem as problem:
            raise problem.beside(**report) from problem
        for name, count in orjson.loads(written).items():
            report[name] += count
    return report


def _steps(payloads: Sequence[Payload], most: int) -> Iterator[list[Payload]]:
    """Parts of so many, or of about so many bytes; one part at least, so that the caller's right is asked for."""
    step: list[Payload] = []
    size = 0
    for payload in payloads:
        step.append(payload)
        size += len(orjson.dumps(payload))
        if len(step) >= most or size >= STEP_BYTES:
            yield step
            step, size = [], 0
    if step or not payloads:
        yield step


def _payloads(target: Target, found: Sequence[Imported]) -> list[Payload]:
    return [write_payload(*target, one.op, one.source) for one in found if one.op is not None]


def _place(source: Json) -> dict[str, Json]:
    """Where in a file it stands."""
    held = source if isinstance(source, dict) else {}
    return {name: held[name] for name in ("line", "held_history", "knowledge") if name in held}
