"""The three projections: their entries, stream by stream, and where a fold of a stream can go on."""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Identity,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    func,
)

from app.sql.tables.metadata import metadata


def _place(prefix: str = "", *, nullable: bool = False) -> list[Column[Any]]:
    """The columns of where an entry stands among all of its stream."""
    types = {"wall_ms": BigInteger, "counter": BigInteger, "device_id": LargeBinary, "op_id": LargeBinary}
    return [Column(prefix + name, type_, nullable=nullable) for name, type_ in types.items()]


#: Primary data, not derived: in the registry a later op with the same id hides an entry, and collection drops its op.
entry = Table(
    "entry",
    metadata,
    Column("scope", Integer, nullable=False),
    Column("wall_ms", BigInteger, nullable=False),
    Column("counter", BigInteger, nullable=False),
    Column("device", Integer, nullable=False),
    Column("projection", SmallInteger, nullable=False),
    Column("stream", LargeBinary, nullable=False),
    Column("id", LargeBinary, nullable=False),
    Column("op_id", LargeBinary, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    PrimaryKeyConstraint("scope", "projection", "stream", "id"),
    Index("ix_entry_place", "scope", "projection", "stream", "wall_ms", "counter"),
)

#: The place of a stream's last entry, and the last name that one gave it. `late` is another
#: number each time that an entry comes or goes below that place.
entry_stream = Table(
    "entry_stream",
    metadata,
    Column("scope", Integer, nullable=False),
    Column("projection", SmallInteger, nullable=False),
    Column("key", LargeBinary, nullable=False),
    Column("name", LargeBinary, nullable=False),
    Column("entries", BigInteger, nullable=False),
    Column("late", BigInteger, nullable=False),
    *_place(),
    Column("label", LargeBinary),
    Column("label_key", LargeBinary),
    *_place("label_", nullable=True),
    PrimaryKeyConstraint("scope", "projection", "key"),
    postgresql_with={"fillfactor": "50"},
)
Index(
    "ix_entry_stream_name",
    entry_stream.c.scope,
    entry_stream.c.projection,
    func.substr(entry_stream.c.name, 1, 224),
)
Index(
    "ix_entry_stream_label",
    *(entry_stream.c[name] for name in ("scope", "projection", "label_key")),
    postgresql_where=entry_stream.c.label_key.is_not(None),
)

#: What the entries up to a place fold to, in the projection's own form.
entry_snapshot = Table(
    "entry_snapshot",
    metadata,
    Column("scope", Integer, nullable=False),
    Column("id", BigInteger, Identity(), nullable=False),
    Column("projection", SmallInteger, nullable=False),
    Column("stream", LargeBinary, nullable=False),
    *_place(),
    Column("entries", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
    PrimaryKeyConstraint("scope", "id"),
    Index("ix_entry_snapshot_place", "scope", "projection", "stream", "wall_ms", "counter"),
)

#: Primary data, not derived: queue entries that a claim handed out, by stream and entry id, and the op that says so.
journal_claim = Table(
    "journal_claim",
    metadata,
    Column("scope", Integer, nullable=False),
    Column("stream", LargeBinary, nullable=False),
    Column("entry", LargeBinary, nullable=False),
    Column("op_id", LargeBinary, nullable=False),
    PrimaryKeyConstraint("scope", "stream", "entry"),
)
