"""Every table, as metadata. Migrations are compared with this by a test.

Conventions that hold everywhere:
- each key leads with the scope's number, so the schema can be distributed by scope;
- ids and keys of the protocol are bytes: any string fits, U+0000 too, and they sort by bytes;
- a *slot key* (`app.sql.keys.slot_key`) stands for a string of any length in an index;
- a *stream key* (`app.sql.keys.stream_key`) is the hash of a stream's or an agent's name;
- `device` in a key is the device's number, which does not sort like its id: break ties by `device.id`.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Numeric,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import TIMESTAMP

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)

U64 = Numeric(20, 0)
Slug = Text(collation="C")
Instant = TIMESTAMP(timezone=True)

server = Table(
    "server",
    metadata,
    Column("id", SmallInteger, CheckConstraint("id = 1", name="single"), primary_key=True, autoincrement=False),
    Column("epoch", Text, nullable=False),
    Column("lease_floor", BigInteger, nullable=False, server_default="0"),
)

scope = Table(
    "scope",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("slug", Slug, nullable=False, unique=True),
    Column("name", LargeBinary),
    Column("mode", Text, CheckConstraint("mode in ('plain', 'sealed')", name="mode")),
    Column("ops", BigInteger, nullable=False, server_default="0"),
    Column("sealed_ops", BigInteger, nullable=False, server_default="0"),
    Column("closed_intents", BigInteger, nullable=False, server_default="0"),
    Column("max_wall_ms", BigInteger, nullable=False, server_default="0"),
    Column("latest_checkpoint", BigInteger),
    Column("base_checkpoint", BigInteger),
    Column("problem", Text),
    Column("problem_at", Instant),
    postgresql_with={"fillfactor": "50"},
)

token = Table(
    "token",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("hash", LargeBinary, nullable=False, unique=True),
    Column(
        "role",
        Text,
        CheckConstraint("role in ('device', 'executor', 'reader', 'admin')", name="role"),
        nullable=False,
    ),
    Column("scope", Integer, ForeignKey("scope.id", ondelete="CASCADE")),
    Column("device", LargeBinary),
    Column("account", Text),
    Column("granter", Boolean, nullable=False, server_default=text("false")),
    Column("created_at", Instant, nullable=False, server_default=func.now()),
    Column("revoked_at", Instant),
    CheckConstraint("(role = 'admin') = (scope is null)", name="reach"),
)

device = Table(
    "device",
    metadata,
    Column("no", Integer, Identity(), primary_key=True),
    Column("scope", Integer, ForeignKey("scope.id", ondelete="CASCADE"), nullable=False),
    Column("slug", Slug, nullable=False),
    Column("id", LargeBinary),
    Column("head_seq", BigInteger),
    Column("head_op_id", LargeBinary),
    Column("head_wall_ms", BigInteger),
    Column("head_counter", BigInteger),
    Column("dropped_below", BigInteger, nullable=False, server_default="0"),
    Column("dropped_op_id", LargeBinary),
    Column("dropped_wall_ms", BigInteger),
    Column("dropped_counter", BigInteger),
    Column("enrolled_at_ms", BigInteger),
    Column("last_seen_ms", BigInteger),
    Column("acked_wall_ms", U64),
    Column("acked_counter", BigInteger),
    Column("acked_device", LargeBinary),
    Column("evicted", Boolean, nullable=False, server_default=text("false")),
    Column("problem", Text),
    Column("problem_at", Instant),
    UniqueConstraint("scope", "slug"),
    postgresql_with={"fillfactor": "50"},
)

op = Table(
    "op",
    metadata,
    Column("scope", Integer, nullable=False),
    Column("wall_ms", BigInteger, nullable=False),
    Column("counter", BigInteger, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("device", Integer, nullable=False),
    Column("payload_at", Integer, nullable=False),
    Column("surface", SmallInteger, nullable=False),
    Column("op_id", LargeBinary, nullable=False),
    Column("stream", LargeBinary),
    Column("body", LargeBinary, nullable=False),
    PrimaryKeyConstraint("scope", "wall_ms", "counter", "device", "op_id"),
    UniqueConstraint("scope", "device", "seq"),
)
Index(
    "ix_op_stream",
    *(op.c[name] for name in ("scope", "surface", "stream", "wall_ms", "counter", "device", "op_id")),
    postgresql_where=op.c.stream.is_not(None),
)

#: The first seq at which a device used a scope tag: a checkpoint at a frontier lists the tags it covers.
op_scope = Table(
    "op_scope",
    metadata,
    Column("scope", Integer, nullable=False),
    Column("device", Integer, nullable=False),
    Column("key", LargeBinary, nullable=False),
    Column("tag", LargeBinary, nullable=False),
    Column("first_seq", BigInteger, nullable=False),
    PrimaryKeyConstraint("scope", "device", "key"),
)

#: Keyed surfaces: one row per key with its winner. Event-stream surfaces: base rows only, whose op is gone.
record = Table(
    "record",
    metadata,
    Column("scope", Integer, nullable=False),
    Column("wall_ms", BigInteger, nullable=False),
    Column("counter", BigInteger, nullable=False),
    Column("device", Integer, nullable=False),
    Column("surface", SmallInteger, nullable=False),
    Column("kind", LargeBinary, nullable=False),
    Column("key", LargeBinary, nullable=False),
    Column("stream", LargeBinary),
    Column("op_id", LargeBinary, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    PrimaryKeyConstraint("scope", "surface", "kind", "key"),
)
Index(
    "ix_record_stream",
    *(record.c[name] for name in ("scope", "surface", "stream", "wall_ms", "counter", "device", "op_id")),
    postgresql_where=record.c.stream.is_not(None),
)

#: The names of registry kinds that are too long to be their own slot key.
registry_kind = Table(
    "registry_kind",
    metadata,
    Column("scope", Integer, nullable=False),
    Column("key", LargeBinary, nullable=False),
    Column("name", LargeBinary, nullable=False),
    PrimaryKeyConstraint("scope", "key"),
)

#: Conversations: what a listing needs without reading a payload.
stream = Table(
    "stream",
    metadata,
    Column("scope", Integer, nullable=False),
    Column("surface", SmallInteger, nullable=False),
    Column("key", LargeBinary, nullable=False),
    Column("name", LargeBinary, nullable=False),
    Column("records", BigInteger, nullable=False),
    Column("first_wall_ms", BigInteger, nullable=False),
    Column("first_counter", BigInteger, nullable=False),
    Column("first_device", LargeBinary, nullable=False),
    Column("last_wall_ms", BigInteger, nullable=False),
    Column("last_counter", BigInteger, nullable=False),
    Column("last_device", LargeBinary, nullable=False),
    PrimaryKeyConstraint("scope", "surface", "key"),
    postgresql_with={"fillfactor": "50"},
)
Index("ix_stream_name", stream.c.scope, stream.c.surface, func.substr(stream.c.name, 1, 224))

agent = Table(
    "agent",
    metadata,
    Column("scope", Integer, nullable=False),
    Column("key", LargeBinary, nullable=False),
    Column("name", LargeBinary, nullable=False),
    Column("slug_key", LargeBinary, nullable=False),
    Column("fencing_epoch", U64, nullable=False),
    PrimaryKeyConstraint("scope", "key"),
    Index("ix_agent_slug", "scope", "slug_key"),
)

#: The leased tier of the state. `view` is 0 for runs and 1 for committed runs.
intent = Table(
    "intent",
    metadata,
    Column("scope", Integer, nullable=False),
    Column("wall_ms", BigInteger, nullable=False),
    Column("counter", BigInteger, nullable=False),
    Column("device", Integer, nullable=False),
    Column("view", SmallInteger, nullable=False),
    Column("pending", Boolean, nullable=False),
    Column("agent", LargeBinary, nullable=False),
    Column("key", LargeBinary, nullable=False),
    Column("op_id", LargeBinary, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    PrimaryKeyConstraint("scope", "agent", "view", "key"),
)
Index("ix_intent_pending", intent.c.scope, intent.c.agent, postgresql_where=intent.c.pending)

#: Primary data, not derived: the greatest pending and failed intent ever seen per agent, run and epoch.
run_seen = Table(
    "run_seen",
    metadata,
    Column("scope", Integer, nullable=False),
    Column("wall_ms", BigInteger, nullable=False),
    Column("counter", BigInteger, nullable=False),
    Column("device", Integer, nullable=False),
    Column("failed", Boolean, nullable=False),
    Column("agent", LargeBinary, nullable=False),
    Column("key", LargeBinary, nullable=False),
    Column("epoch", U64, nullable=False),
    Column("op_id", LargeBinary, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    PrimaryKeyConstraint("scope", "agent", "key", "epoch", "failed"),
)

lease = Table(
    "lease",
    metadata,
    Column("scope", Integer, nullable=False),
    Column("agent", LargeBinary, nullable=False),
    Column("slug", LargeBinary, nullable=False),
    Column("epoch", BigInteger, nullable=False, server_default="0"),
    Column("holder", LargeBinary),
    Column("expires_at_ms", BigInteger, nullable=False, server_default="0"),
    PrimaryKeyConstraint("scope", "agent"),
    postgresql_with={"fillfactor": "50"},
)

#: A stored checkpoint, without its text. `exact` is false once retention has trimmed it.
checkpoint = Table(
    "checkpoint",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("scope", Integer, ForeignKey("scope.id", ondelete="CASCADE"), nullable=False),
    Column("hash", Slug, nullable=False),
    Column("state_hash", Slug, nullable=False),
    Column("origin", Text, CheckConstraint("origin in ('device', 'server')", name="origin"), nullable=False),
    Column("exact", Boolean, nullable=False, server_default=text("true")),
    Column("size", BigInteger, nullable=False),
    Column("created_at", Instant, nullable=False, server_default=func.now()),
    UniqueConstraint("scope", "hash"),
)

checkpoint_frontier = Table(
    "checkpoint_frontier",
    metadata,
    Column("checkpoint", BigInteger, ForeignKey("checkpoint.id", ondelete="CASCADE"), nullable=False),
    Column("device", Integer, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("op_id", LargeBinary, nullable=False),
    Column("wall_ms", BigInteger, nullable=False),
    Column("counter", BigInteger, nullable=False),
    PrimaryKeyConstraint("checkpoint", "device"),
)

#: The canonical text of a checkpoint in order, compressed piece by piece.
checkpoint_chunk = Table(
    "checkpoint_chunk",
    metadata,
    Column("checkpoint", BigInteger, ForeignKey("checkpoint.id", ondelete="CASCADE"), nullable=False),
    Column("no", Integer, nullable=False),
    Column("starts_at", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
    PrimaryKeyConstraint("checkpoint", "no"),
)
