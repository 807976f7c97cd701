"""What hosted writes leave beside their ops."""

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, LargeBinary, PrimaryKeyConstraint, Table

from app.sql.tables.metadata import metadata

#: The answer to a hosted write by the hash of its idempotency key, with the hash of the request.
idempotency = Table(
    "idempotency",
    metadata,
    Column("scope", Integer, ForeignKey("scope.id", ondelete="CASCADE"), nullable=False),
    Column("key", LargeBinary, nullable=False),
    Column("request", LargeBinary, nullable=False),
    Column("answer", LargeBinary, nullable=False),
    Column("until_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("scope", "key"),
)
Index("ix_idempotency_until_ms", idempotency.c.scope, idempotency.c.until_ms)
