"""What raw PostgreSQL does with the same rows: the denominators of P1 and P10."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.world import World

#: An empty table with the op table's columns, defaults, constraints and indexes.
TABLE = "create table if not exists bench_op (like op including all)"

COLUMNS = """
select attname as name, format_type(atttypid, atttypmod) as type from pg_attribute
where attrelid = 'op'::regclass and attnum > 0 and not attisdropped order by attnum
"""


@dataclass(frozen=True, slots=True)
class RawTable:
    """`bench_op`, and the statements that fill it."""

    names: Sequence[str]
    types: Sequence[str]

    @classmethod
    async def make(cls, world: World) -> "RawTable":
        await world.pg.execute(TABLE)
        rows = await world.pg.fetch(COLUMNS)
        return cls([row["name"] for row in rows], [row["type"] for row in rows])

    @property
    def unnest(self) -> str:
        """A whole batch, one array per column."""
        arrays = ", ".join(f"${i}::{kind}[]" for i, kind in enumerate(self.types, 1))
        return f"insert into bench_op ({', '.join(self.names)}) select * from unnest({arrays})"

    @property
    def values(self) -> str:
        """One row."""
        places = ", ".join(f"${i}" for i in range(1, len(self.names) + 1))
        return f"insert into bench_op ({', '.join(self.names)}) values ({places})"

    async def rows_of(self, world: World, slug: str) -> list[list[Any]]:
        """The rows that the server made of a scope's ops, in the order of their chains."""
        found = await world.pg.fetch(
            f"select {', '.join('o.' + name for name in self.names)} from op o join scope s on s.id = o.scope"
            " where s.slug = $1 order by o.device, o.seq", slug
        )  # fmt: skip
        return [list(row) for row in found]

    def in_scope(self, rows: Sequence[Sequence[Any]], scope: int) -> list[list[Any]]:
        """The same rows of another scope: nothing of them is in the table yet."""
        at = self.names.index("scope")
        return [[*row[:at], scope, *row[at + 1 :]] for row in rows]


def columns(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """As `unnest` takes them."""
    return [list(column) for column in zip(*rows, strict=True)]
