"""Pushes that wait for one scope are taken together by one transaction; each caller still has its own answer."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random  # noqa: TID251 - the type of `dice`
from typing import Any, NamedTuple

import pytest

from foldpoint.canonical import Json
from foldpoint.op import make_op
from tests.fixtures.server import ADMIN_TOKEN
from tests.storms.devices import HOUR_MS, Device, body_of, devices, written
from tests.storms.fleet import Fleet
from tests.storms.stored import check, connected, held_device, held_scope, terminate, until_waiting
from tests.storms.wire import Wire, connection, request

NEW_TOKEN = """
insert into token (role, scope, device, hash)
values ($1, (select id from scope where slug = $2), convert_to($3, 'utf8'), sha256(convert_to($4, 'utf8')))
"""
REVOKE = "update token set revoked_at = now() where hash = sha256(convert_to($1, 'utf8'))"
TRANSACTIONS = "select count(distinct xmin::text) from op where scope = (select id from scope where slug = $1)"
LATER_TRANSACTIONS = """
select count(distinct op.xmin::text) from op join scope on scope.id = op.scope
where scope.slug = any($1) and op.seq > 0
"""


class Push(NamedTuple):
    """A request, and the answer it must get: a status, and a code if that is not 200."""

    path: str
    body: bytes
    token: str = ADMIN_TOKEN
    status: int = 200
    code: str | None = None


class Lane:
    """One scope in one server process. While it is plugged, what is sent waits behind the plug's push."""

    def __init__(self, fleet: Fleet, dice: Random, scope: str) -> None:
        del fleet.running[1:]
        self.fleet, self.dice, self.scope = fleet, dice, scope
        self.plug = Device("plug", dice)
        self.open = AsyncExitStack()

    @asynccontextmanager
    async def plugged(self) -> AsyncIterator[None]:
        self.plug.write()
        async with held_scope(self.fleet.database_url, self.scope):
            first = asyncio.create_task(self.plug.push(self.fleet, self.scope))
            await until_waiting(self.fleet.database_url, 1)
            yield
            assert not first.done()
        await first

    async def send(self, pushes: Sequence[Push]) -> list[Wire]:
        """Send each on a connection of its own; they wait in the lane when this returns."""
        wires = await self.write(pushes)
        for number in range(3):  # these go the same way, to another lane, and come after
            (late,) = devices(1, self.dice)
            late.write()
            await late.push(self.fleet, f"{self.scope}_{secrets.token_hex(4)}_{number}")
        return wires

    async def write(self, pushes: Sequence[Push]) -> list[Wire]:
        """Send each on a connection of its own; the server has read them when this returns."""
        base = self.fleet.running[0].base
        wires = [await self.open.enter_async_context(connection(base)) for _ in pushes]
        for wire, push in zip(wires, pushes, strict=True):
            await wire.send(request(push.path, push.body, push.token))
        for _ in range(3):
            await self.fleet.call("GET", "/healthz")
        return wires


@pytest.fixture
async def lane(fleet: Fleet, dice: Random, scope: str) -> AsyncIterator[Lane]:
    """A lane of a scope that exists."""
    found = Lane(fleet, dice, scope)
    found.plug.write()
    await found.plug.push(fleet, scope)
    async with found.open:
        yield found


def one_each(crew: Sequence[Device], scope: str, count: int = 1) -> list[Push]:
    return [Push(device.path(scope), body_of(device.write(count))) for device in crew]


async def new_token(fleet: Fleet, role: str, scope: str, device: str | None = None) -> str:
    secret = secrets.token_urlsafe(16)
    async with connected(fleet.database_url) as database:
        await database.execute(NEW_TOKEN, role, scope, device, secret)
    return secret


async def expect(wires: Sequence[Wire], pushes: Sequence[Push]) -> list[Any]:
    bodies = []
    for wire, push in zip(wires, pushes, strict=True):
        status, body = await wire.answer()
        assert (status, body.get("code")) == (push.status, push.code), (push.path, body)
        bodies.append(body)
    return bodies


async def test_pushes_that_wait_are_one_transaction_with_an_answer_each(lane: Lane) -> None:
    crew = devices(16, lane.dice)
    pushes = [Push(device.path(lane.scope), body_of(device.write(1 + n % 3))) for n, device in enumerate(crew)]
    async with lane.plugged():
        wires = await lane.send(pushes)
    answers = await expect(wires, pushes)
    assert answers == [{"accepted": 1 + n % 3, "deduped": 0} for n in range(16)]
    async with connected(lane.fleet.database_url) as database:
        # two by the plug's pushes, one or two by all others
        assert await database.fetchval(TRANSACTIONS, lane.scope) <= 4
    await check(lane.fleet, lane.scope, [*written(crew), *lane.plug.ops])


async def test_pushes_of_one_device_that_wait_together_join_one_chain(lane: Lane) -> None:
    (device,) = devices(1, lane.dice)
    ops = device.write(6)
    fork = make_op(device.name, 5, ops[4].op_id, ops[5].hlc, "personal", "routing", {"another": 1})
    path = device.path(lane.scope)
    pushes = [
        Push(path, body_of(ops[:2])),
        Push(path, body_of(ops[1:4])),
        Push(path, body_of(ops[3:4])),
        Push(path, body_of(ops[5:]), ADMIN_TOKEN, 409, "gap"),
        Push(path, body_of(ops[4:])),
        Push(path, body_of([fork]), ADMIN_TOKEN, 409, "chain_fork"),
    ]
    async with lane.plugged():
        wires = []
        for push in pushes:  # one after another, so that they wait in this order
            wires += await lane.send([push])
    bodies = await expect(wires, pushes)
    counts = [(body["accepted"], body["deduped"]) for body in bodies]
    assert counts == [(2, 0), (2, 1), (0, 1), (0, 0), (2, 0), (0, 0)]
    await check(lane.fleet, lane.scope, [*ops, *lane.plug.ops])


async def test_what_is_wrong_with_one_push_harms_no_other(lane: Lane) -> None:
    scope, fleet = lane.scope, lane.fleet
    good = devices(8, lane.dice)
    await good[0].push(fleet, f"{scope}_elsewhere")
    twin, bad = Device("twin", lane.dice), Device("bad", lane.dice)
    twin.write(2)
    await twin.push(fleet, scope)
    (op, *later) = bad.write(4)

    def of_bad(seq: int = 0, wall_ms: int = op.hlc.wall_ms, payload: Json = None, prev: str | None = None) -> bytes:
        hlc = op.hlc._replace(wall_ms=wall_ms)
        return make_op(bad.name, seq, prev, hlc, "personal", "routing", payload).text()

    tomorrow = lane.dice.randrange(2**50, 2**53) + 48 * HOUR_MS
    sealed: Json = {"car_enc": "chacha20poly1305", "nonce": "00", "ct": "00"}
    fork = make_op(twin.name, 1, twin.ops[0].op_id, twin.ops[1].hlc, "personal", "routing", {"another": 1})
    path, body = bad.path(scope), body_of([op])
    revoked = await new_token(fleet, "device", scope)
    unfair = [
        Push(path, body, "no-such-token", 401, "unauthorized"),
        Push(path, body, revoked, 401, "unauthorized"),
        Push(path, body, await new_token(fleet, "device", f"{scope}_elsewhere"), 403, "forbidden"),
        Push(path, body, await new_token(fleet, "device", scope, "somebody-else"), 403, "forbidden"),
        Push(path, body, await new_token(fleet, "reader", scope), 403, "forbidden"),
        Push(path, b"{}", status=422, code="invalid_request"),
        Push(path, b"[7]", status=422, code="unreadable_op"),
        Push(path, b"[%b]" % op.text().replace(b'"seq":0', b'"seq":-1'), status=422, code="unreadable_op"),
        Push(path, b"[%b]" % op.text().replace(op.op_id.encode(), b"op-" + b"0" * 32), status=422, code="chain_broken"),
        Push(path, b"[%b]" % of_bad(prev="op-" + "0" * 32), status=422, code="chain_broken"),
        Push(path, b"[%b]" % of_bad(wall_ms=tomorrow), status=422, code="clock_skew"),
        Push(path, b"[%b]" % of_bad(payload=sealed), status=409, code="plain_scope"),
        Push(path, body_of(later), status=409, code="gap"),
        Push(twin.path(scope), body_of([fork]), status=409, code="chain_fork"),
        Push(twin.path(scope), body, status=403, code="foreign_ops"),
        Push(path.replace(bad.name, "hosted-x"), body, status=403, code="reserved_device"),
    ]
    pushes = [*unfair, *one_each(good, scope)]
    lane.dice.shuffle(pushes)
    async with lane.plugged():
        wires = await lane.send(pushes)
        async with connected(fleet.database_url) as database:
            await database.execute(REVOKE, revoked)
    await expect(wires, pushes)
    await check(fleet, scope, [*(device.ops[0] for device in good), *twin.ops, *lane.plug.ops])


@pytest.mark.parametrize("segment", ["a%00b", "a" * 5_000, "%FF", "%F0%9F%98%80", "..%2F..", "%20"])
async def test_a_device_segment_that_no_device_sends_harms_no_other(lane: Lane, segment: str) -> None:
    good, bad = devices(4, lane.dice), Device("bad", lane.dice)
    path = bad.path(lane.scope).replace(bad.name, segment)
    async with lane.plugged():
        odd = await lane.send([Push(path, body_of(bad.write()))])
        pushes = one_each(good, lane.scope)
        wires = await lane.send(pushes)
    await expect(wires, pushes)
    status, body = await odd[0].answer()
    assert status < 500, body
    await check(lane.fleet, lane.scope, [*written(good), *lane.plug.ops])


async def test_clients_that_leave_while_they_wait_harm_no_other(lane: Lane) -> None:
    crew = devices(16, lane.dice)
    pushes = one_each(crew, lane.scope)
    async with lane.plugged():
        wires = await lane.send(pushes)
        for wire in wires[::2]:
            wire.reset()
    assert await expect(wires[1::2], pushes[1::2]) == [{"accepted": 1, "deduped": 0}] * 8
    for device in crew:
        device.write()
        await device.push(lane.fleet, lane.scope)
    await check(lane.fleet, lane.scope, [*written(crew), *lane.plug.ops])


async def test_a_transaction_that_fails_is_tried_push_by_push_and_none_fails_for_its_neighbour(lane: Lane) -> None:
    """One device of eight is held, and the transaction that is for all of them is ended; then its own is."""
    crew = devices(8, lane.dice)
    for device in crew:
        device.write()
        await device.push(lane.fleet, lane.scope)
    pushes = one_each(crew, lane.scope)
    pushes[-1] = pushes[-1]._replace(status=503, code="unavailable")
    url = lane.fleet.database_url
    async with held_device(url, lane.scope, crew[-1].name):
        async with lane.plugged():
            wires = await lane.send(pushes)
        await until_waiting(url, 1)
        await terminate(url)
        await expect(wires[:-1], pushes[:-1])
        await until_waiting(url, 1)
        await terminate(url)
        await expect(wires[-1:], pushes[-1:])
    for device in crew[:-1]:
        assert (await device.push(lane.fleet, lane.scope)).json() == {"accepted": 0, "deduped": 1}
    assert (await crew[-1].push(lane.fleet, lane.scope)).json() == {"accepted": 1, "deduped": 0}
    await check(lane.fleet, lane.scope, [*written(crew), *lane.plug.ops])


@pytest.mark.parametrize(("breaks", "transactions"), [(0, 1), (2, 12)], ids=["together", "apart once it breaks"])
async def test_pushes_of_several_scopes_are_one_transaction(lane: Lane, breaks: int, transactions: int) -> None:
    url, crew = lane.fleet.database_url, devices(12, lane.dice)
    scopes = [f"{lane.scope}_{number}" for number in range(len(crew))]
    for device, scope in zip(crew, scopes, strict=True):
        device.write()
        await device.push(lane.fleet, scope)
    pushes = [Push(device.path(scope), body_of(device.write())) for device, scope in zip(crew, scopes, strict=True)]
    lane.plug.write()
    async with connected(url) as outside:
        async with outside.transaction():
            await outside.execute("lock table token in access exclusive mode")
            plug = asyncio.create_task(lane.plug.push(lane.fleet, lane.scope))
            await until_waiting(url, 1)
            wires = await lane.write(pushes)
            for alone in range(breaks):  # first the plug's transaction, then the one of all others
                await terminate(url)
                await until_waiting(url, 2 + alone)
        assert await expect(wires, pushes) == [{"accepted": 1, "deduped": 0}] * len(crew)
        await plug
        assert await outside.fetchval(LATER_TRANSACTIONS, scopes) == transactions
    for device, scope in zip(crew, scopes, strict=True):
        await check(lane.fleet, scope, device.ops)


async def test_sixteen_devices_that_push_as_fast_as_they_can_all_get_through(
    fleet: Fleet, dice: Random, scope: str
) -> None:
    crew = devices(16, dice)

    async def push_on(device: Device) -> None:
        for _ in range(12):
            device.write()
            response = await device.push(fleet, scope)
            assert response.json() == {"accepted": 1, "deduped": 0}

    await asyncio.gather(*(push_on(device) for device in crew))
    assert fleet.retries == 0
    await check(fleet, scope, written(crew))
