"""Run ledgers of a sealed scope: what is opened is told, what is locked is not, writes are sealed (server.md §9)."""

from typing import Any

import httpx

from foldpoint.envelope import is_envelope
from foldpoint.op_text import read_op
from tests.fixtures.devices import op_texts
from tests.fixtures.ledgers import FINISHED, STARTED, Ledgers, called, numbered, record
from tests.fixtures.projections import recorded
from tests.fixtures.sealing import Sealing, delete_keys, put_keys
from tests.wire.answers import read, refused


async def test_a_sealed_run_is_told_while_its_scope_is_unlocked(admin: httpx.AsyncClient, scope: str) -> None:
    mac, ledgers = Sealing(admin, scope, "mac"), Ledgers(admin, scope)
    told: list[Any] = numbered(called())
    for one in told:
        recorded(mac, one)
    await mac.push()
    paths = ("", "/conflicts", "/readback", "/export", "/statuses")
    for path in paths:
        refused(await ledgers.get(path), "sealed_scope", 503)
    refused(await ledgers.append(record(6, STARTED)), "sealed_scope", 409)
    refused(await ledgers.import_(b""), "sealed_scope", 409)
    read(await put_keys(admin, scope))
    assert read(await ledgers.get())["command"]["command"] == "execute_tool"
    read(await ledgers.acquire())
    start = await ledgers.append(record(6, STARTED), epoch=1, seal=True, key="k")
    assert read(start)["sealed"] == 7
    assert (await ledgers.append(record(6, STARTED), epoch=1, seal=True, key="k")).content == start.content
    log = [read_op(text) for text in op_texts(await mac.pull())]
    assert all(is_envelope(op.payload) for op in log)
    assert len(log) == 8
    before = {path: (await ledgers.get(path)).content for path in paths[1:]}
    read(await delete_keys(admin, scope))
    for path in paths:
        refused(await ledgers.get(path), "sealed_scope", 503)
    refused(await ledgers.seal(5, 1), "sealed_scope", 409)
    read(await put_keys(admin, scope))
    assert {path: (await ledgers.get(path)).content for path in paths[1:]} == before
    again = await ledgers.append(record(6, STARTED), epoch=1, seal=True, key="k")
    assert again.content == start.content
    assert read(await ledgers.append(record(7, FINISHED), epoch=1))["next_seq"] == 8
