"""Keys of sealed scopes, and how far their ops are opened."""

from sqlalchemy import BigInteger, Column, ForeignKey, Integer, LargeBinary, PrimaryKeyConstraint, Table

from app.sql.tables.metadata import metadata

#: The keyring that a scope's owner gave, encrypted under the key file that `key_id` names. The counters say by how much
#: the scope's `sealed_ops` and `closed_intents` are less than without these keys.
scope_key = Table(
    "scope_key",
    metadata,
    Column("scope", Integer, ForeignKey("scope.id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("key_id", LargeBinary, nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    Column("opened_ops", BigInteger, nullable=False, server_default="0"),
    Column("settled_intents", BigInteger, nullable=False, server_default="0"),
)

#: Up to which seq the ops of a device are folded; only while the scope is unlocking.
opened = Table(
    "opened",
    metadata,
    Column("scope", Integer, ForeignKey("scope.id", ondelete="CASCADE"), nullable=False),
    Column("device", Integer, nullable=False),
    Column("upto", BigInteger, nullable=False),
    PrimaryKeyConstraint("scope", "device"),
)
