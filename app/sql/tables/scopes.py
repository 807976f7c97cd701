"""The server, its scopes, tokens and devices."""

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
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    func,
    text,
)

from app.sql.tables.metadata import U64, Instant, Slug, metadata

server = Table(
    "server",
    metadata,
    Column("id", SmallInteger, CheckConstraint("id = 1", name="single"), primary_key=True, autoincrement=False),
    Column("epoch", Text, nullable=False),
    Column("lease_floor", BigInteger, nullable=False, server_default="0"),
)

#: `ops` counts what is held, `accepted` what was ever taken in; `checkpointed` is `accepted` at the server's last
#: checkpoint, which had `checkpointed_records`. `key_state` is null while the scope is locked; `key_generation` is
#: another after every change of its keys.
scope = Table(
    "scope",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("slug", Slug, nullable=False, unique=True),
    Column("name", LargeBinary),
    Column("mode", Text, CheckConstraint("mode in ('plain', 'sealed')", name="mode")),
    Column("ops", BigInteger, nullable=False, server_default="0"),
    Column("accepted", BigInteger, nullable=False, server_default="0"),
    Column("checkpointed", BigInteger, nullable=False, server_default="0"),
    Column("checkpointed_records", BigInteger, nullable=False, server_default="0"),
    Column("sealed_ops", BigInteger, nullable=False, server_default="0"),
    Column("closed_intents", BigInteger, nullable=False, server_default="0"),
    Column("max_wall_ms", BigInteger, nullable=False, server_default="0"),
    Column("latest_checkpoint", BigInteger),
    Column("base_checkpoint", BigInteger),
    Column("retention", Text),
    Column("problem", Text),
    Column("problem_at", Instant),
    Column("key_state", Text, CheckConstraint("key_state in ('unlocking', 'unlocked')", name="key_state")),
    Column("key_generation", Integer, nullable=False, server_default="0"),
    postgresql_with={"fillfactor": "50"},
)
Index("ix_scope_unlocking", scope.c.id, postgresql_where=scope.c.key_state == "unlocking")

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
    Column("scope", Integer, ForeignKey("scope.id", ondelete="CASCADE"), nullable=False),
    Column("no", Integer, Identity(), nullable=False),
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
    Column("acked_at_ms", BigInteger),
    Column("evicted", Boolean, nullable=False, server_default=text("false")),
    Column("problem", Text),
    Column("problem_at", Instant),
    PrimaryKeyConstraint("scope", "no"),
    UniqueConstraint("scope", "slug"),
    postgresql_with={"fillfactor": "50"},
)
