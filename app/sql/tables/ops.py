"""Ops and what they fold to, but for the leased tier."""

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    UniqueConstraint,
    func,
)

from app.sql.tables.metadata import metadata

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

#: Keyed surfaces: one row per key with its winner. Event-stream surfaces: base rows, whose op is gone, and opened
#: payloads, whose op's row holds an envelope.
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
