"""`verify` finds every kind of damage: each case changes rows behind the server's back, in its own database."""

import re
from collections.abc import AsyncIterator

import asyncpg
import orjson
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from app.database import create_engine
from app.services.access import Caller
from app.services.checkpoints.judging import Judging
from app.services.checkpoints.making_checkpoints import make_at_head
from app.services.pushing.push import Pusher
from app.services.slots import Slots
from app.services.verification.verifying import verify
from app.settings import Settings
from foldpoint.canonical import Json
from foldpoint.checkpoint import checkpoint_from_ops
from foldpoint.device_log import DeviceLog
from foldpoint.op import Op

START_MS = 1_750_000_000_000
CONTENT: list[tuple[str, Json]] = [
    ("conversation", {"conversation_id": "c", "role": "user", "content": "hello"}),
    ("knowledge", {"id": "fact", "v": 1}),
    ("registry:config", {"id": "k", "v": 1}),
    ("intent", {"id": "r1", "agent_id": "a", "epoch": 1, "status": "pending"}),
    ("intent", {"id": "r2", "agent_id": "a", "epoch": 1, "status": "committed"}),
    ("routing", {"sample": 0.5}),
    ("registry:foldpoint.journal", {"id": "nobody's", "session": "s", "entry": {"op": "unrewind"}}),
]

DAMAGE = {
    "another payload": (
        "update op set body = replace(encode(body, 'escape'), 'hello', 'jello')::bytea",
        "stored op_id",
    ),
    "a missing op": ("delete from op where seq = 1", "seq gap"),
    "a wrong stream": ("update op set stream = ''::bytea where surface = 3", "does not say what the op says"),
    "a wrong head": ("update device set head_seq = head_seq - 1", "the head is at seq"),
    "a changed record": ("update record set counter = counter + 1 where surface = 4", "log 'knowledge'"),
    "a missing record": ("delete from record where surface = 6", "registry 'config'"),
    "a raised fence": ("update agent set fencing_epoch = 9", "the fence is not the folded one"),
    "a lost commit": ("delete from intent where view = 1", "view 'committed_runs'"),
    "a lost sighting": ("delete from run_seen", "run_seen of agent 'a' lacks"),
    "a miscounted conversation": (
        "update stream set records = records + 1",
        "conversation 'c' lists 2 turns, there are 1",
    ),
    "a lost entry": ("delete from entry", "the entries of foldpoint.journal lack op"),
    "another entry": ("update entry set payload = '{}'", "does not say what the op says"),
    "a miscounted stream": ("update entry_stream set entries = 3", "'s' lists 3 entries, there are 1"),
    "a wrong snapshot": (
        """
        insert into entry_snapshot (scope, projection, stream, wall_ms, counter, device_id, op_id, entries, body)
        select scope, projection, key, wall_ms, counter, device_id, op_id, entries, convert_to(
            '{"version":2,"undelivered":{},"at":null,"messages":[],"undo_stack":[],"queues":{},"heads":{},"covered":{},'
            '"double_delivery":[],"renamed_at":null,"judged":[],"taken":[],"kept":0,"checkpoint_messages":null,'
            '"last_checkpoints":{},"plan":[],"renames":[],"upgrades":[],"upgraded_by":[],"model_changes":[],'
            '"usage":[],"records":0,"skipped":0}', 'utf8') from entry_stream
        """,
        "a snapshot of foldpoint.journal 's' is not the fold",
    ),
    "a miscounted scope": ("update scope set ops = ops + 1", "the scope counts 8 ops, there are 7"),
    "a forgotten stamp": ("update scope set max_wall_ms = 1", "highest stamp"),
    "a forgotten scope tag": ("delete from op_scope", "is not noted"),
    "a renamed checkpoint": ("update checkpoint set state_hash = 'state-0'", "of another checkpoint"),
    "a lost part of a checkpoint": ("delete from checkpoint_chunk", "the text ends at byte 0"),
    "a moved checkpoint": ("update checkpoint_frontier set seq = seq - 1", "frontier's rows"),
    "a floor without a base": ("update device set dropped_below = 1", "the base does not cover"),
}


@pytest.fixture
async def engine(database_url: str) -> AsyncIterator[AsyncEngine]:
    """An engine on a database with one scope: a chain on several surfaces, and a checkpoint of it."""
    engine = create_engine(database_url, pool_size=3)
    log = DeviceLog("mac")
    ops: list[Op] = [log.append(START_MS, "personal", surface, payload) for surface, payload in CONTENT]
    body = orjson.dumps([orjson.Fragment(op.text()) for op in ops])
    caller = Caller(b"", root=True)
    await Pusher(engine, Settings()).push(caller, "user_ada", "mac", body, on_wire=True)
    await Judging(engine, Slots(1, each=1)).put(caller, 1, b"".join(checkpoint_from_ops(ops).pieces()))
    yield engine
    await engine.dispose()


async def faults(engine: AsyncEngine) -> list[str]:
    return [fault async for fault in verify(engine, 1)]


async def test_an_honest_scope_has_no_fault(engine: AsyncEngine) -> None:
    assert await faults(engine) == []


@pytest.mark.parametrize("name", DAMAGE)
async def test_damage_is_named(engine: AsyncEngine, database_url: str, name: str) -> None:
    statement, expected = DAMAGE[name]
    connection = await asyncpg.connect(database_url)
    await connection.execute(statement)
    await connection.close()
    found = await faults(engine)
    assert any(re.search(expected, fault) for fault in found), found


async def test_a_record_that_a_checkpoint_was_made_from_is_still_checked(
    engine: AsyncEngine, database_url: str
) -> None:
    connection = await asyncpg.connect(database_url)
    await connection.execute(DAMAGE["a changed record"][0])
    await connection.close()
    await make_at_head(engine, 1)
    found = await faults(engine)
    assert any("log 'knowledge'" in fault for fault in found), found
    assert any("its state is not the fold of the ops" in fault for fault in found), found
