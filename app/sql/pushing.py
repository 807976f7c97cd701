"""Devices as pushes find them under their scopes' locks, and as they leave them."""

from collections.abc import Sequence
from typing import NamedTuple, Self

from app.sql.access import GRANTED, LOCKING, Locked, locked_of
from app.sql.devices import NOW_MS, chain_of
from app.sql.keys import raw_op_id, slot_key
from app.sql.transactions import Driver, Row
from app.sql.writes import Writes
from foldpoint.relay import Chain


class Device(NamedTuple):
    """One device's chain. `scope_keys` are the slot keys of the scope tags it has used."""

    no: int
    chain: Chain
    scope_keys: frozenset[bytes] = frozenset()


_DEVICE = """
d.no, d.id, d.head_seq, d.head_op_id, d.head_wall_ms, d.head_counter, d.dropped_below,
array(select key from op_scope where scope = d.scope and device = d.no) as scope_keys
"""
LOAD = f"""
select a.i, {_DEVICE} from unnest($1::int[], $2::text[]) with ordinality as a(scope, slug, i)
cross join lateral (select * from device where scope = a.scope and slug = a.slug limit 1) d
"""
ADD = "insert into device (scope, slug) select * from unnest($1::int[], $2::text[]) on conflict do nothing"


class Place(NamedTuple):
    """Where a device is found: its scope and its slug."""

    scope: int
    slug: str


async def load(pg: Driver, places: Sequence[Place]) -> dict[Place, Device]:
    """The devices of these slugs, new ones added; call it under the scopes' locks."""
    found = await _load(pg, places)
    if new := [place for place in places if place not in found]:
        await pg.execute(ADD, *zip(*new, strict=True))
        found |= await _load(pg, new)
    return found


async def _load(pg: Driver, places: Sequence[Place]) -> dict[Place, Device]:
    if not places:
        return {}
    rows = await pg.fetch(LOAD, *zip(*places, strict=True))
    return {places[row["i"] - 1]: _device_of(row) for row in rows}


def _device_of(row: Row) -> Device:
    return Device(row["no"], chain_of(row), frozenset(row["scope_keys"]))


class Named(NamedTuple):
    """A token, as its hash, and the slugs of the scope and the device that it is to be used on."""

    token_hash: bytes
    scope: str
    device: str


#: The devices are locked too: they are read as they are now, and what is written to them later waits for nobody.
LOCK_FREE = f"""
select a.i, {GRANTED}, {_DEVICE}
from unnest($1::bytea[], $2::text[], $3::text[]) with ordinality as a(hash, slug, device, i) {LOCKING}
cross join lateral (select * from device where scope = s.id and slug = a.device limit 1 for no key update) d
""".replace("for no key update", "for no key update skip locked")


async def lock_free(pg: Driver, named: Sequence[Named]) -> dict[Named, tuple[Locked, Device]]:
    """Lock the scopes and devices that exist and that nobody else has locked; it waits for none."""
    rows = await pg.fetch(LOCK_FREE, *zip(*named, strict=True))
    return {named[row["i"] - 1]: (locked_of(row), _device_of(row)) for row in rows}


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
