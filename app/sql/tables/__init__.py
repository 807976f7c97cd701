"""Every table, as metadata. Migrations are compared with this by a test.

Conventions that hold everywhere:
- each key leads with the scope's number, so the schema can be distributed by scope;
- ids and keys of the protocol are bytes: any string fits, U+0000 too, and they sort by bytes;
- a *slot key* (`app.sql.keys.slot_key`) stands for a string of any length in an index;
- a *stream key* (`app.sql.keys.stream_key`) is the hash of a stream's or an agent's name;
- `device` in a key is the device's number, which does not sort like its id: break ties by `device.id`.
"""

from app.sql.tables.checkpoints import checkpoint, checkpoint_chunk, checkpoint_frontier, trim
from app.sql.tables.entries import entry, entry_snapshot, entry_stream, journal_claim
from app.sql.tables.executors import agent, claim_reset, intent, lease, run_seen
from app.sql.tables.hosted import idempotency
from app.sql.tables.metadata import metadata
from app.sql.tables.ops import op, op_scope, record, registry_kind, stream
from app.sql.tables.org_keys import org_key_wrap, org_public_key
from app.sql.tables.scope_keys import opened, scope_key
from app.sql.tables.scopes import device, scope, server, token

__all__ = [
    "agent",
    "checkpoint",
    "checkpoint_chunk",
    "checkpoint_frontier",
    "claim_reset",
    "device",
    "entry",
    "entry_snapshot",
    "entry_stream",
    "idempotency",
    "intent",
    "journal_claim",
    "lease",
    "metadata",
    "op",
    "op_scope",
    "opened",
    "org_key_wrap",
    "org_public_key",
    "record",
    "registry_kind",
    "run_seen",
    "scope",
    "scope_key",
    "server",
    "stream",
    "token",
    "trim",
]
