"""Agents: the leased tier of the state, what was ever seen of runs, and leases."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    func,
)

from app.sql.tables.metadata import U64, Instant, metadata

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
    Column("epoch", BigInteger, nullable=False, server_default="0"),
    Column("holder", LargeBinary),
    Column("expires_at_ms", BigInteger, nullable=False, server_default="0"),
    PrimaryKeyConstraint("scope", "agent"),
    postgresql_with={"fillfactor": "50"},
)

#: Claims of epochs that left no room, which an admin let go, by whose token and when; rows are only ever added.
#: `floor` is the highest epoch with room that was seen of these agents then.
claim_reset = Table(
    "claim_reset",
    metadata,
    Column("scope", Integer, nullable=False),
    Column("agent", LargeBinary, nullable=False),
    Column("claim", U64, nullable=False),
    Column("claimed_by", LargeBinary, nullable=False),
    Column("floor", BigInteger, nullable=False),
    Column("token", Integer),
    Column("reset_at", Instant, nullable=False, server_default=func.now()),
    PrimaryKeyConstraint("scope", "agent", "claim"),
)
