"""Pushes go on while a scope of thousands of ops is unlocked, locked and given further keys: every op is folded once.

STORM_ROUNDS makes longer storms of it.
"""

import asyncio
import os
from random import Random  # noqa: TID251 - the type of `dice`

import httpx

from app.database import NO_TIMEOUT, create_engine
from app.key_file import KeyFile
from app.services.keys.vault import Vault
from app.services.verification.verifying import verify
from app.sql.scopes import listed
from foldpoint.seal import Keyring
from foldpoint.state import state_hash
from tests.fixtures.devices import body_of
from tests.fixtures.sealing import Sealing, delete_keys, folded, given, master, owner, put_keys
from tests.fixtures.server import ADMIN_TOKEN, key_file
from tests.storms.fleet import Fleet
from tests.wire.answers import read, refused

ROUNDS = int(os.environ.get("STORM_ROUNDS", "3"))
NAMES = ("mac", "phone", "tablet")
MANY = 3_000


class Storm:
    """Sealing devices that push through any server, until they are told to stop."""

    def __init__(self, fleet: Fleet, scope: str, dice: Random) -> None:
        self.clients, self.scope, self.dice = list(fleet.clients.values()), scope, dice
        for client in self.clients:
            client.headers["Authorization"] = f"Bearer {ADMIN_TOKEN}"
        self.devices = [Sealing(self.any(), scope, name) for name in NAMES]
        self.over = False

    def any(self) -> httpx.AsyncClient:
        return self.dice.choice(self.clients)

    async def push_on(self, device: Sealing) -> None:
        while not self.over:
            device.client = self.any()
            device.write_mixed(self.dice.choice([1, 3, 40, 300]))
            await device.push()

    async def ask_on(self) -> None:
        """A state is whole, or it is not to be had."""
        while not self.over:
            response = await self.any().get(f"/v1/scopes/{self.scope}/transcript", params={"conversation": "c0"})
            if response.status_code == 503:
                refused(response, "sealed_scope", 503)

    async def change_keys(self) -> Keyring:
        """What the owner does meanwhile; the keys that the server has in the end."""
        passphrase, both = Keyring(master()), owner()
        read(await put_keys(self.any(), self.scope))
        if self.dice.random() < 0.5:
            read(await delete_keys(self.any(), self.scope))
            return self.locked
        personal = Keyring(audiences={"personal": passphrase.keys_for("personal", None)[0].key})
        orgs = Keyring(audiences=both.audiences)
        answers = (put_keys(self.any(), self.scope, given(keys)) for keys in (orgs, personal))
        for response in await asyncio.gather(*answers):
            read(response)
        return both

    locked = Keyring()


async def test_every_op_is_folded_once(fleet: Fleet, scope: str, dice: Random) -> None:
    for round_ in range(ROUNDS):
        storm = Storm(fleet, f"{scope}-{round_}", dice)
        for device in storm.devices:
            device.write_mixed(MANY // len(NAMES))
            await device.push()
        async with asyncio.TaskGroup() as tasks:
            for device in storm.devices:
                tasks.create_task(storm.push_on(device))
            tasks.create_task(storm.ask_on())
            held = await storm.change_keys()
            storm.over = True
        if held is storm.locked:
            found = read(await storm.any().get(f"/v1/scopes/{storm.scope}/"))
            assert found["sealed_ops"] == found["ops"]
            read(await put_keys(storm.any(), storm.scope, given(owner())))
        ops = [op for device in storm.devices for op in device.ops]
        expected = state_hash(folded(ops, owner()))
        for client in storm.clients:
            found = read(await client.get(f"/v1/scopes/{storm.scope}/state/hash"))
            assert (found["state_hash"], found["sealed_ops"]) == (expected, 0)
        assert await faults(fleet.database_url, storm.scope) == []


async def faults(url: str, scope: str) -> list[str]:
    engine = create_engine(url, 2, **NO_TIMEOUT)
    ((number, _),) = await listed(engine, scope)
    found = [fault async for fault in verify(engine, number, vault=Vault(KeyFile.read(key_file())))]
    await engine.dispose()
    return found


async def test_unlocking_survives_the_death_of_its_process(own_fleet: Fleet, dice: Random) -> None:
    """The one that unlocks is killed in the middle; the other goes on, and what is pushed meanwhile is folded too."""
    await own_fleet.start(2)
    storm = Storm(own_fleet, "user_ada", dice)
    mac, phone, tablet = storm.devices
    for _ in range(3):
        mac.write_mixed(MANY)
        await mac.push()
    dying, living = storm.clients
    asked = asyncio.create_task(put_keys(dying, storm.scope))
    while read(await living.get(f"/v1/scopes/{storm.scope}/"))["keys"] is None:
        phone.client = living
        phone.write_mixed(1)
        await phone.push()
    own_fleet.kill(0)
    await asyncio.gather(asked, return_exceptions=True)
    tablet.client = living
    tablet.write_mixed(10)
    assert (await living.post(f"{tablet.path}/ops", content=body_of(tablet.ops))).status_code == 200
    while (response := await living.get(f"/v1/scopes/{storm.scope}/state/hash")).status_code == 503:
        refused(response, "sealed_scope", 503)
    ops = [*mac.ops, *phone.ops, *tablet.ops]
    assert read(response)["state_hash"] == state_hash(folded(ops, Keyring(master())))
