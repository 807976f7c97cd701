"""What every table is declared with."""

from sqlalchemy import MetaData, Numeric, Text
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
