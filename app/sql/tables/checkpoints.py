"""Stored checkpoints, and what retention did."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    func,
    text,
)

from app.sql.tables.metadata import U64, Instant, Slug, metadata

#: A stored checkpoint, without its text, which goes when it is no longer `kept`; that it was stored is remembered:
#: its coverage still counts, and who asks for it learns that it is gone.
#: `trims` is how often retention had trimmed the state before: 0 is exact.
checkpoint = Table(
    "checkpoint",
    metadata,
    Column("scope", Integer, ForeignKey("scope.id", ondelete="CASCADE"), nullable=False),
    Column("id", BigInteger, Identity(), nullable=False),
    Column("hash", Slug, nullable=False),
    Column("state_hash", Slug, nullable=False),
    Column("origin", Text, CheckConstraint("origin in ('device', 'server')", name="origin"), nullable=False),
    Column("kept", Boolean, nullable=False, server_default=text("true")),
    Column("trims", Integer, nullable=False, server_default="0"),
    Column("size", BigInteger, nullable=False),
    Column("created_at", Instant, nullable=False, server_default=func.now()),
    PrimaryKeyConstraint("scope", "id"),
    UniqueConstraint("scope", "hash"),
)

checkpoint_frontier = Table(
    "checkpoint_frontier",
    metadata,
    Column("scope", Integer, nullable=False),
    Column("checkpoint", BigInteger, nullable=False),
    Column("device", Integer, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("op_id", LargeBinary, nullable=False),
    Column("wall_ms", BigInteger, nullable=False),
    Column("counter", BigInteger, nullable=False),
    PrimaryKeyConstraint("scope", "checkpoint", "device"),
    ForeignKeyConstraint(["scope", "checkpoint"], ["checkpoint.scope", "checkpoint.id"], ondelete="CASCADE"),
)

#: The canonical text of a checkpoint in order, compressed piece by piece. It is swept after its checkpoint is gone,
#: so that nobody waits for that under the scope's lock.
checkpoint_chunk = Table(
    "checkpoint_chunk",
    metadata,
    Column("scope", Integer, nullable=False),
    Column("checkpoint", BigInteger, nullable=False),
    Column("no", Integer, nullable=False),
    Column("starts_at", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
    PrimaryKeyConstraint("scope", "checkpoint", "no"),
)

#: What retention did, policy by policy; it is under way until `done_at`.
trim = Table(
    "trim",
    metadata,
    Column("scope", Integer, ForeignKey("scope.id", ondelete="CASCADE"), nullable=False),
    Column("no", Integer, nullable=False),
    Column("policy", Text, nullable=False),
    Column("as_of_ms", U64, nullable=False),
    Column("dropped", BigInteger, nullable=False, server_default="0"),
    Column("tombstoned", BigInteger, nullable=False, server_default="0"),
    Column("began_at", Instant, nullable=False, server_default=func.now()),
    Column("done_at", Instant),
    PrimaryKeyConstraint("scope", "no"),
)
