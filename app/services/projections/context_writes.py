"""Hosted writes into contexts, and whole files of them (stored-message.md §11)."""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from app.problems import Problem
from app.services.access import Caller
from app.services.hosting import Hold, Hosting, Plan, Write
from app.services.projections.contexts import FOLD
from app.services.projections.streams import Read, Streams
from app.services.pushing.arrivals import off_loop
from app.sql import entries
from app.sql.entries import StreamKey
from app.sql.keys import stream_key
from foldpoint.canonical import Json, Unreadable
from foldpoint.hosted import Draft
from foldpoint.op import Op
from foldpoint.projections import CONTEXT
from foldpoint.stored_message.files import Imported
from foldpoint.stored_message.ops import admit, write_payload
from foldpoint.stored_message.refusals import Refused
from foldpoint.stored_message.session import SessionContext

#: Ops of a file that one transaction stores, and about how many bytes.
STEP, STEP_BYTES = 1_000, 4 * 1024 * 1024
#: Lines of a report.
MOST_TOLD = 1_000


Payload = dict[str, Json]


class Target(NamedTuple):
    """Whose ops, on which session."""

    writer: str
    session: str

    @property
    def key(self) -> StreamKey:
        return StreamKey(CONTEXT.number, stream_key(self.session))


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


@dataclass(slots=True)
class Appending:
    """One call that writes ops, none of them on a message that was removed."""

    streams: Streams
    _read: Read[SessionContext] | None = None

    def plan(self, target: Target, ops: Sequence[dict[str, Any]]) -> Plan:
        """What it would do under the scope's lock. That raises Problem."""
        payloads = [write_payload(*target, op) for op in ops]

        async def plan(hold: Hold) -> list[Draft]:
            self._read = await self.streams.read(hold.pg, hold.where, FOLD, target.session)
            _refuse_removed(ops, self._read.now)
            taken = await entries.known(hold.pg, hold.where.scope, target.key, map(_id, payloads))
            drafts = []
            for op, payload in zip(ops, payloads, strict=True):
                again = _id(payload) in taken
                taken.add(_id(payload))
                source = {"nonce": secrets.token_hex(8)}
                drafts.append(_draft(write_payload(*target, op, source) if again else payload))
            return drafts

        return plan

    async def keep(self) -> None:
        """Keep the snapshot that came of it, if one did: a writer may never read."""
        if self._read is not None:
            await self.streams.keep(self._read)


def _refuse_removed(ops: Sequence[dict[str, Any]], context: SessionContext) -> None:
    removed = set(context.removed)
    for index, op in enumerate(ops):
        if op["op"] == "remove":
            removed.add(op["message_id"])
        elif op["message_id"] in removed:
            detail = f"message {op['message_id']!r} was removed, and ids are never used again"
            raise Problem("invalid_request", detail, {"path": f"ops[{index}].message_id"})


def _id(payload: dict[str, Json]) -> str:
    return str(payload["id"])


def _draft(payload: dict[str, Json]) -> Draft:
    return Draft("personal", CONTEXT.tag, payload)


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
        told: dict[str, int] = {"stored": 0}
        try:
            await hosting.write(caller, scope, Write(target.writer, size, _missing(target, step, told), _nothing))
        except Problem as problem:
            raise problem.beside(**report) from problem
        report["stored"] += told["stored"]
        report["duplicate"] += len(step) - told["stored"]
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


def _payloads(target: Target, found: Sequence[Imported]) -> list[dict[str, Json]]:
    return [write_payload(*target, one.op, one.source) for one in found if one.op is not None]


def _missing(target: Target, payloads: Sequence[dict[str, Json]], told: dict[str, int]) -> Plan:
    async def plan(hold: Hold) -> list[Draft] | dict[str, Any]:
        known = await entries.known(hold.pg, hold.where.scope, target.key, [_id(payload) for payload in payloads])
        missing = [_draft(payload) for payload in payloads if _id(payload) not in known]
        told["stored"] = len(missing)
        return missing or {}

    return plan


async def _nothing(_hold: Hold, _ops: Sequence[Op]) -> dict[str, Any]:
    return {}


def _place(source: Json) -> dict[str, Json]:
    """Where in a file it stands."""
    held = source if isinstance(source, dict) else {}
    return {name: held[name] for name in ("line", "held_history", "knowledge") if name in held}
