"""Devices as pushes find them under their scopes' locks, and as they leave them."""

from collections.abc import Sequence
from typing import NamedTuple, Self

from app.sql.devices import NOW_MS, chain_of
from app.sql.keys import raw_op_id, slot_key
from app.sql.transactions import Driver
from app.sql.writes import Writes
from foldpoint.relay import Chain


class Device(NamedTuple):
    """One device's chain. `scope_keys` are the slot keys of the scope tags it has used."""

    no: int
    chain: Chain
    scope_keys: frozenset[bytes] = frozenset()


LOAD = """
select a.i, d.*, array(select key from op_scope s where s.scope = d.scope and s.device = d.no) as scope_keys
from unnest($1::int[], $2::text[]) with ordinality as a(scope, slug, i)
cross join lateral (
    select scope, no, id, head_seq, head_op_id, head_wall_ms, head_counter, dropped_below
    from device where scope = a.scope and slug = a.slug limit 1
) d
"""
#: As `LOAD`, locking them, without those that somebody else has locked.
LOAD_FREE = LOAD.replace("limit 1", "limit 1 for no key update skip locked")
ADD = "insert into device (scope, slug) select * from unnest($1::int[], $2::text[]) on conflict do nothing"


class Place(NamedTuple):
    """Where a device is found: its scope and its slug."""

    scope: int
    slug: str


async def load(pg: Driver, places: Sequence[Place], *, wait: bool) -> dict[Place, Device]:
    """The devices of these slugs; call it under the scopes' locks.

    New ones are added. Without `wait` they are left out, and those that are locked: adding may wait for another's
    contact, as writing to them would.
    """
    found = await _load(pg, LOAD if wait else LOAD_FREE, places)
    if wait and (new := [place for place in places if place not in found]):
        await pg.execute(ADD, *zip(*new, strict=True))
        found |= await _load(pg, LOAD, new)
    return found


async def _load(pg: Driver, statement: str, places: Sequence[Place]) -> dict[Place, Device]:
    if not places:
        return {}
    rows = await pg.fetch(statement, *zip(*places, strict=True))
    return {places[row["i"] - 1]: Device(row["no"], chain_of(row), frozenset(row["scope_keys"])) for row in rows}


class Changed(NamedTuple):
    """What a push changes of a device that is there; None of what stays.

    The first op binds the slug to the raw id. `problem` is why the push was refused, for an admin to see, and since
    when it is.
    """

    scope: int
    no: int
    slug: str
    id: bytes | None
    head_seq: int | None
    head_op_id: bytes | None
    head_wall_ms: int | None
    head_counter: int | None
    problem: str | None
    contact: bool

    @classmethod
    def of(cls, place: Place, device: Device, chain: Chain | None, problem: str | None, *, contact: bool) -> Self:
        """`chain` is the device's with its new head."""
        if chain is None:
            return cls(place.scope, device.no, place.slug, None, None, None, None, None, problem, contact)
        assert chain.device_id is not None
        assert chain.head is not None
        seq, hlc, op_id = chain.head
        head = seq, raw_op_id(op_id), hlc.wall_ms, hlc.counter
        return cls(place.scope, device.no, place.slug, chain.device_id.encode(), *head, problem, contact)


#: A fork does not end by what the one of the two replicas pushes: it is shown until something else is refused.
#: Every other refusal is over once an op is accepted. The text of a problem begins with its code.
_FORKED = """starts_with(d.problem, '{"code":"chain_fork"')"""
_LASTS = f"(excluded.head_seq is null or {_FORKED})"
_AGAIN = f"""(
    d.problem = excluded.problem
    or split_part(d.problem, ',', 1) = split_part(excluded.problem, ',', 1) and not {_FORKED}
)"""
#: An upsert though each row is there: its look-up is an index probe, whatever the statistics say.
PUT = f"""
insert into device as d (scope, no, slug, id, head_seq, head_op_id, head_wall_ms, head_counter, problem,
                         enrolled_at_ms, last_seen_ms)
select scope, no, slug, id, head_seq, head_op_id, head_wall_ms, head_counter, problem,
       case when contact then {NOW_MS} end, case when contact then {NOW_MS} end
from unnest($1::int[], $2::int[], $3::text[], $4::bytea[], $5::bigint[], $6::bytea[], $7::bigint[], $8::bigint[],
            $9::text[], $10::boolean[])
    as w(scope, no, slug, id, head_seq, head_op_id, head_wall_ms, head_counter, problem, contact)
on conflict (scope, no) do update set
    id = coalesce(excluded.id, d.id), head_seq = coalesce(excluded.head_seq, d.head_seq),
    head_op_id = coalesce(excluded.head_op_id, d.head_op_id),
    head_wall_ms = coalesce(excluded.head_wall_ms, d.head_wall_ms),
    head_counter = coalesce(excluded.head_counter, d.head_counter),
    problem = coalesce(excluded.problem, case when {_LASTS} then d.problem end),
    problem_at = case
        when excluded.problem is null then case when {_LASTS} then d.problem_at end
        when {_LASTS} and {_AGAIN} then d.problem_at
        else clock_timestamp() end,
    enrolled_at_ms = coalesce(d.enrolled_at_ms, excluded.enrolled_at_ms),
    last_seen_ms = greatest(d.last_seen_ms, excluded.last_seen_ms)
"""
NAME_SCOPES = """
insert into op_scope (scope, device, key, tag, first_seq)
select * from unnest($1::int[], $2::int[], $3::bytea[], $4::bytea[], $5::bigint[]) on conflict do nothing
"""


def put(writes: Writes, changed: Changed) -> None:
    """Move a chain's head, note a refusal, note the contact."""
    writes.add(PUT, [changed])


def name_scopes(writes: Writes, scope: int, no: int, first_seqs: dict[str, int]) -> None:
    """Remember at which seq a device first used these scope tags: a checkpoint lists those it covers."""
    writes.add(NAME_SCOPES, [(scope, no, slot_key(tag), tag.encode(), seq) for tag, seq in first_seqs.items()])
