"""Hosted chains: what the server writes for a client that keeps no op log (server.md §7, §11)."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from foldpoint.admission import HOSTED_PREFIX, I64_MAX, MAX_PAYLOAD_DEPTH
from foldpoint.canonical import U64_MAX, Json, Unreadable, canonical, is_deeper
from foldpoint.device_log import DeviceLog
from foldpoint.hlc import U32_MAX, CounterExhausted, Hlc
from foldpoint.op import Op, integer, read_scope
from foldpoint.relay import Chain
from foldpoint.surfaces import conversation, intent, read_surface

#: How much of the server epoch is in a hosted device's id.
EPOCH_CHARS = 8
_NAME = r"[A-Za-z0-9_-]{1,64}"
_WRITER = re.compile(_NAME)
_DEVICE = re.compile(f"{HOSTED_PREFIX}({_NAME})-[0-9a-f]{{{EPOCH_CHARS}}}")
ROLES = {"user": "user", "assistant": "assistant", "tool": "tool", "tool_result": "tool"}
STATUSES = ("pending", "committed", "failed")


def read_writer(value: Json, path: str = "writer") -> str:
    """A hosted writer's name. Raises Unreadable."""
    if not isinstance(value, str) or not _WRITER.fullmatch(value):
        raise Unreadable("a writer's name has 1 to 64 letters, digits, - and _", path)
    return value


def hosted_device(writer: str, server_epoch: str) -> str:
    """The id of a writer's chain in this generation; its own slug. After a restore it is another one."""
    return f"{HOSTED_PREFIX}{writer}-{server_epoch[:EPOCH_CHARS]}"


def writer_of(device_id: str) -> str | None:
    """The writer that a hosted chain was written for; None of a device's own chain."""
    hosted = _DEVICE.fullmatch(device_id)
    return hosted[1] if hosted else None


def is_hosted(device_id: str) -> bool:
    return device_id.startswith(HOSTED_PREFIX)


class Draft(NamedTuple):
    """An op before it has a place in a chain."""

    scope: str
    surface: str
    payload: Json


def read_drafts(value: Json) -> list[Draft]:
    """The `ops` of an append. Raises Unreadable with the path of what is wrong."""
    if not isinstance(value, list) or not value:
        raise Unreadable("expected a list of ops", "ops")
    return [_read_draft(item, f"ops[{index}].") for index, item in enumerate(value)]


def _read_draft(value: Json, path: str) -> Draft:
    if not isinstance(value, dict) or "payload" not in value:
        raise Unreadable("expected surface and payload", path.rstrip("."))
    try:
        surface = read_surface(value.get("surface"))
        scope = read_scope(value.get("scope", "personal"))
    except Unreadable as error:
        raise Unreadable(str(error), path + error.path) from error
    return Draft(scope, surface, _bounded(value["payload"], path + "payload"))


def _bounded(payload: Json, path: str) -> Json:
    if is_deeper(canonical(payload), MAX_PAYLOAD_DEPTH):
        raise Unreadable(f"more than {MAX_PAYLOAD_DEPTH} nested containers", path)
    return payload


def turn_draft(fields: dict[str, Any], now_ms: int) -> Draft:
    """A turn as the crate writes one (car-sync.md §7.1). Raises Unreadable for what a transcript could not show."""
    name = _text(fields, "conversation_id")
    if not name.strip():
        raise Unreadable("a conversation id that is not blank is needed", "conversation_id")
    role = fields.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise Unreadable(f"expected one of {', '.join(ROLES)}", "role")
    calls = [] if fields.get("tool_calls") is None else _read_calls(fields["tool_calls"])
    use_id = fields.get("tool_use_id")
    content = _text(fields, "content") if fields.get("content") is not None else ""
    if not content and not calls and use_id is None:
        raise Unreadable("a turn needs content, tool calls or a tool_use_id", "content")
    at = now_ms if fields.get("timestamp") is None else integer(fields, "timestamp", U64_MAX, "")
    payload: dict[str, Json] = {"conversation_id": name, "role": ROLES[role], "content": content, "timestamp": at}
    if calls:
        payload["tool_calls"] = calls
    if use_id is not None:
        payload["tool_use_id"] = _text(fields, "tool_use_id")
    payload |= _verdict(fields)
    return Draft("personal", conversation.SURFACE.name, _bounded(payload, "tool_calls"))


def _verdict(fields: dict[str, Any]) -> dict[str, Json]:
    provenance, ok = fields.get("provenance"), fields.get("ok")
    if provenance not in (None, "internal", "external"):
        raise Unreadable("expected internal or external", "provenance")
    if ok is not None and not isinstance(ok, bool):
        raise Unreadable("expected true or false", "ok")
    found: dict[str, Json] = {"provenance": "external"} if provenance == "external" else {}
    return found if ok is None else {**found, "ok": ok}


def _read_calls(value: Json) -> list[Json]:
    if not isinstance(value, list):
        raise Unreadable("expected a list of tool calls", "tool_calls")
    for index, call in enumerate(value):
        if (
            not isinstance(call, dict)
            or not isinstance(call.get("name"), str)
            or not isinstance(call.get("arguments"), dict)
            or not isinstance(call.get("id"), str | None)
        ):
            raise Unreadable("expected name, arguments and perhaps an id", f"tool_calls[{index}]")
    return list(value)


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise Unreadable("expected a string", name)
    return value


class Outcome(NamedTuple):
    """What an executor records of a run."""

    agent_id: str
    run_id: str
    epoch: int
    status: str

    def draft(self) -> Draft:
        """The intent as the crate writes one (car-sync.md §8.1)."""
        payload: dict[str, Json] = {
            "id": self.run_id, "agent_id": self.agent_id, "epoch": self.epoch, "status": self.status,
        }  # fmt: skip
        return Draft("personal", intent.SURFACE.name, payload)


def read_outcome(fields: dict[str, Any]) -> Outcome:
    """Raises Unreadable; an epoch is at least 1: none was ever granted below."""
    agent, run = _text(fields, "agent_id"), _text(fields, "run_id")
    for name, value in (("agent_id", agent), ("run_id", run)):
        if not value:
            raise Unreadable("expected a name", name)
    epoch = integer(fields, "epoch", U64_MAX, "")
    if epoch < 1:
        raise Unreadable("an epoch is at least 1", "epoch")
    status = fields.get("status")
    if not isinstance(status, str) or status not in STATUSES:
        raise Unreadable(f"expected one of {', '.join(STATUSES)}", "status")
    return Outcome(agent, run, epoch, status)


def mint(chain: Chain, drafts: Iterable[Draft], witnessed: Sequence[Hlc], now_ms: int) -> list[Op]:
    """The drafts as the next ops of a hosted chain, stamped above everything witnessed in the scope.

    Where the counter is full the stamp takes the next millisecond. `chain` is bound to the hosted device's id.
    Raises CounterExhausted where no stamp is left that can be stored.
    """
    assert chain.device_id is not None
    log = DeviceLog(chain.device_id, chain.next_seq, chain.head.head if chain.head else None)
    for stamp in witnessed:
        log.observe(stamp)
    minted = []
    for draft in drafts:
        full = log.clock.counter == U32_MAX and now_ms <= log.clock.wall_ms
        op = log.append(log.clock.wall_ms + 1 if full else now_ms, *draft)
        if op.hlc.wall_ms > I64_MAX:
            raise CounterExhausted(f"no stamp above {log.clock.wall_ms} ms can be stored")
        minted.append(op)
    return minted
