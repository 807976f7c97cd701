"""The org-key directory of a scope: it is no part of the op stream, and neither frontiers nor GC know it."""

from sqlalchemy import Column, ForeignKey, Integer, LargeBinary, PrimaryKeyConstraint, Table

from app.sql.tables.metadata import U64, Slug, metadata

#: One wrap per recipient and epoch, as it was published; `slug` is the recipient's, by which the wire asks.
org_key_wrap = Table(
    "org_key_wrap",
    metadata,
    Column("scope", Integer, ForeignKey("scope.id", ondelete="CASCADE"), nullable=False),
    Column("slug", Slug, nullable=False),
    Column("epoch", U64, nullable=False),
    Column("recipient", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
    PrimaryKeyConstraint("scope", "slug", "epoch", "recipient"),
)

org_public_key = Table(
    "org_public_key",
    metadata,
    Column("scope", Integer, ForeignKey("scope.id", ondelete="CASCADE"), nullable=False),
    Column("account", Slug, nullable=False),
    Column("public_hex", LargeBinary, nullable=False),
    PrimaryKeyConstraint("scope", "account"),
)
