"""Migrations: equal to the metadata, safe when servers start together, and honest about a newer schema."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from typing import TypeVar

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database import create_engine
from app.migrate import LOCK, MigrationError, at_head, head, upgrade
from app.sql.tables import metadata

FIRST = import_module("migrations.versions.0001_ops")
CATALOG = {
    "columns": """
        select attrelid::regclass::text, attname, format_type(atttypid, atttypmod), attnotnull, attidentity::text,
            pg_get_expr(adbin, adrelid), collname
        from pg_attribute
        join pg_class on pg_class.oid = attrelid and relkind = 'r' and relnamespace = 'public'::regnamespace
        left join pg_attrdef on adrelid = attrelid and adnum = attnum
        left join pg_collation on pg_collation.oid = attcollation
        where attnum > 0 and relname <> 'alembic_version'
        order by attrelid::regclass::text, attnum
    """,
    "constraints": """
        select conrelid::regclass::text, conname, pg_get_constraintdef(oid)
        from pg_constraint
        where connamespace = 'public'::regnamespace and conrelid <> coalesce(to_regclass('alembic_version'), 0)
        order by 1, 2
    """,
    "indexes": """
        select indexname, indexdef from pg_indexes
        where schemaname = 'public' and tablename <> 'alembic_version'
        order by 1
    """,
    "storage": """
        select relname, reloptions from pg_class
        where relkind = 'r' and relnamespace = 'public'::regnamespace and relname <> 'alembic_version'
        order by 1
    """,
}

T = TypeVar("T")
Schema = dict[str, list[tuple[object, ...]]]


async def with_connection(url: str, work: Callable[[Connection], T]) -> T:
    engine = create_engine(url, pool_size=1)
    try:
        async with engine.begin() as connection:
            return await connection.run_sync(work)
    finally:
        await engine.dispose()


def read_schema(connection: Connection) -> Schema:
    return {name: [tuple(row) for row in connection.execute(text(query))] for name, query in CATALOG.items()}


def create_from_metadata(connection: Connection) -> None:
    metadata.create_all(connection)


def set_revision(revision: str) -> Callable[[Connection], None]:
    def work(connection: Connection) -> None:
        connection.execute(text("update alembic_version set version_num = :revision"), {"revision": revision})

    return work


async def test_migrations_build_exactly_the_metadata(database_url: str, empty_database_url: str) -> None:
    await with_connection(empty_database_url, create_from_metadata)
    migrated = await with_connection(database_url, read_schema)
    declared = await with_connection(empty_database_url, read_schema)
    assert len(declared["columns"]) > 100
    for name in CATALOG:
        assert migrated[name] == declared[name]


async def test_autogenerate_finds_nothing_to_write(database_url: str) -> None:
    def differences(connection: Connection) -> object:
        options = {"compare_server_default": True, "compare_type": True}
        return compare_metadata(MigrationContext.configure(connection, opts=options), metadata)

    assert await with_connection(database_url, differences) == []


async def test_each_database_gets_its_own_server_epoch(database_url: str, empty_database_url: str) -> None:
    def epoch(connection: Connection) -> str:
        return str(connection.scalar(text("select epoch from server")))

    await upgrade(empty_database_url)
    epochs = [await with_connection(url, epoch) for url in (database_url, empty_database_url)]
    assert len(set(epochs)) == 2
    assert all(len(bytes.fromhex(each)) == 16 for each in epochs)


async def test_a_second_upgrade_changes_nothing(database_url: str) -> None:
    before = await with_connection(database_url, read_schema)
    await upgrade(database_url)
    assert await with_connection(database_url, read_schema) == before


async def test_a_database_of_the_first_revision_is_brought_to_this_one_with_its_rows(
    empty_database_url: str, database_url: str
) -> None:
    def build(connection: Connection) -> None:
        version = "create table alembic_version (version_num varchar(32) constraint alembic_version_pkc primary key)"
        scope = "insert into scope (slug) values ('acme')"
        for statement in (*FIRST.STATEMENTS, version, "insert into alembic_version values ('0001')", scope):
            connection.execute(text(statement))

    await with_connection(empty_database_url, build)
    await upgrade(empty_database_url)
    schemas = [await with_connection(url, read_schema) for url in (empty_database_url, database_url)]
    assert schemas[0] == schemas[1]
    slug = await with_connection(
        empty_database_url, lambda connection: connection.scalar(text("select slug from scope"))
    )
    assert slug == "acme"


async def test_four_processes_upgrade_an_empty_database_at_once(empty_database_url: str, database_url: str) -> None:
    code = "import asyncio, sys; from app.migrate import upgrade; asyncio.run(upgrade(sys.argv[1]))"
    processes = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", code, empty_database_url, stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    errors = [(await process.communicate())[1] for process in processes]
    assert errors == [b"", b"", b"", b""]
    assert [process.returncode for process in processes] == [0, 0, 0, 0]
    schemas = [await with_connection(url, read_schema) for url in (empty_database_url, database_url)]
    assert schemas[0] == schemas[1]


async def test_an_upgrade_waits_for_the_one_that_runs(empty_database_url: str) -> None:
    engine = create_engine(empty_database_url, pool_size=1)
    async with engine.connect() as holder:
        await holder.execute(text("select pg_advisory_lock(:key)"), {"key": LOCK})
        waiting = asyncio.create_task(upgrade(empty_database_url))
        await _until_someone_asked_for_the_lock(holder)
        assert not await at_head(holder)
        await holder.execute(text("select pg_advisory_unlock_all()"))
        await waiting
        await holder.rollback()
        assert await at_head(holder)
    await engine.dispose()


async def _until_someone_asked_for_the_lock(connection: AsyncConnection) -> None:
    asked = text("select count(*) from pg_stat_activity where query like '%pg_try_advisory_lock%' and pid <> :own")
    own = await connection.scalar(text("select pg_backend_pid()"))
    while not await connection.scalar(asked, {"own": own}):
        await connection.rollback()


async def test_a_newer_schema_is_refused_and_both_revisions_named(database_url: str) -> None:
    await with_connection(database_url, set_revision("9999"))
    with pytest.raises(MigrationError, match=f"schema revision 9999, .* knows none after {head()}"):
        await upgrade(database_url)


async def test_at_head_means_this_version_s_schema(database_url: str, empty_database_url: str) -> None:
    async def ask(url: str) -> bool:
        engine = create_engine(url, pool_size=1)
        async with engine.connect() as connection:
            answer = await at_head(connection)
        await engine.dispose()
        return answer

    assert await ask(database_url)
    assert not await ask(empty_database_url)
    await with_connection(database_url, set_revision("9999"))
    assert not await ask(database_url)
