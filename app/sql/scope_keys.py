"""Keys of sealed scopes as they are stored, and how far the ops of a scope are opened. All under the scope's lock."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from app.sql.access import KeyState
from app.sql.transactions import Driver
from app.sql.writes import Writes


class Stored(NamedTuple):
    """A keyring under the key file that `key_id` names."""

    key_id: bytes
    sealed: bytes


class Held(NamedTuple):
    """What a scope is, and what is held of its keys: nothing, if it is locked. `ever_used` says whether it had ops."""

    mode: str | None
    state: KeyState | None
    generation: int
    ops: int
    sealed_ops: int
    ever_used: bool
    stored: Stored | None


HELD = """
select s.mode, s.key_state, s.key_generation, s.ops, s.sealed_ops, s.accepted > 0 as ever_used,
       k.key_id, k.sealed
from scope s left join scope_key k on k.scope = s.id where s.id = $1
"""


async def held(pg: Driver, scope: int) -> Held:
    row = await pg.fetchrow(HELD, scope)
    assert row is not None
    stored = None if row["key_id"] is None else Stored(row["key_id"], row["sealed"])
    known = row["mode"], row["key_state"], row["key_generation"], row["ops"], row["sealed_ops"], row["ever_used"]
    return Held(*known, stored)


async def stored(pg: Driver, scope: int) -> Stored | None:
    row = await pg.fetchrow("select key_id, sealed from scope_key where scope = $1", scope)
    return None if row is None else Stored(row["key_id"], row["sealed"])


async def any_stored(pg: Driver) -> bool:
    return bool(await pg.fetchval("select exists (select from scope_key)"))


#: Whatever was folded of opened payloads.
FOLDED = (
    *("record", "registry_kind", "stream", "agent", "intent", "run_seen", "opened"),
    *("entry", "entry_stream", "entry_snapshot", "journal_claim"),
)
UNCOUNT = """
update scope s set sealed_ops = s.sealed_ops + k.opened_ops, closed_intents = s.closed_intents + k.settled_intents
from scope_key k where s.id = $1 and k.scope = $1
"""


#: Random, so that no number comes again with other keys after a restore, while a process still holds some by it.
NEXT_GENERATION = """
update scope set key_state = null, key_generation = (random() * 2147483646)::integer where id = $1
"""


async def remove(pg: Driver, scope: int) -> None:
    """Lock a scope: its keys go, and all that was folded of its opened payloads."""
    for table in FOLDED:
        await pg.execute(f"delete from {table} where scope = $1", scope)
    await pg.execute(UNCOUNT, scope)
    await pg.execute("delete from scope_key where scope = $1", scope)
    await pg.execute(NEXT_GENERATION, scope)


async def forget_claims(pg: Driver, scope: int) -> None:
    """Forget which claims an admin let go: they name agents as their intents did."""
    await pg.execute("delete from claim_reset where scope = $1", scope)


async def begin(pg: Driver, scope: int, keys: Stored) -> None:
    """Give a locked scope these keys: nothing of it is folded yet. A scope without ops is sealed from now on."""
    await pg.execute("insert into scope_key (scope, key_id, sealed) values ($1, $2, $3)", scope, *keys)
    await pg.execute("update scope set key_state = 'unlocking', mode = coalesce(mode, 'sealed') where id = $1", scope)


async def finish(pg: Driver, scope: int) -> None:
    """Every op is folded, and from now on pushes fold theirs."""
    await pg.execute("delete from opened where scope = $1", scope)
    await pg.execute("update scope set key_state = 'unlocked' where id = $1", scope)


async def unlocking(pg: Driver) -> list[int]:
    """The scopes whose ops are still to be opened."""
    return [row["id"] for row in await pg.fetch("select id from scope where key_state = 'unlocking' order by id")]


async def generations(pg: Driver, numbers: Sequence[int]) -> dict[int, int]:
    """Which generation of keys each of these scopes has; none of one that is locked."""
    unlocked = "select id, key_generation from scope where id = any($1::int[]) and key_state is not null"
    return {row["id"]: row["key_generation"] for row in await pg.fetch(unlocked, numbers)}


async def opened_upto(pg: Driver, scope: int) -> dict[int, int]:
    """Up to which seq each device's ops are folded."""
    rows = await pg.fetch("select device, upto from opened where scope = $1", scope)
    return {row["device"]: row["upto"] for row in rows}


UPTO = """
insert into opened (scope, device, upto) select * from unnest($1::int[], $2::int[], $3::bigint[])
on conflict (scope, device) do update set upto = excluded.upto
"""


def put_upto(writes: Writes, scope: int, upto: Mapping[int, int]) -> None:
    writes.add(UPTO, [(scope, device, seq) for device, seq in upto.items()])


COUNT = """
update scope_key k set opened_ops = k.opened_ops + w.opened, settled_intents = k.settled_intents + w.settled
from unnest($1::int[], $2::bigint[], $3::bigint[]) as w(scope, opened, settled) where k.scope = w.scope
"""
RECOUNT = """
update scope s set sealed_ops = s.sealed_ops - w.opened, closed_intents = s.closed_intents - w.settled
from unnest($1::int[], $2::bigint[], $3::bigint[]) as w(scope, opened, settled) where s.id = w.scope
"""


def count(writes: Writes, scope: int, opened: int, settled: int) -> None:
    """Note how many ops were opened, and how many intents are settled: opened, or closed to every device alike."""
    writes.add(COUNT, [(scope, opened, settled)])


def recount(writes: Writes, scope: int, opened: int, settled: int) -> None:
    """Take from the scope's counts what `count` notes, for ops that are counted there as sealed."""
    writes.add(RECOUNT, [(scope, opened, settled)])


async def counts(pg: Driver, scope: int) -> tuple[int, int]:
    """What `count` has noted."""
    row = await pg.fetchrow("select opened_ops, settled_intents from scope_key where scope = $1", scope)
    return (0, 0) if row is None else (row["opened_ops"], row["settled_intents"])


async def set_mode(pg: Driver, scope: int, mode: str) -> None:
    await pg.execute("update scope set mode = $2 where id = $1", scope, mode)


async def scope_tags(pg: Driver, scope: int) -> list[str]:
    """The tags that ops of this scope have."""
    rows = await pg.fetch("select distinct tag from op_scope where scope = $1", scope)
    return sorted(row["tag"].decode() for row in rows)
