"""What one server process has: its engine, its settings, and the pushes that wait in it."""

import asyncio
from dataclasses import dataclass, field

from sqlalchemy.ext.asyncio import AsyncEngine

from app.services.background import Background
from app.services.hosting import Hosting
from app.services.judging import Judging
from app.services.open_streams import OpenStreams
from app.services.push import Pusher
from app.settings import Settings

#: Connections of one process for work on whole scopes.
PATIENT = 6


@dataclass(slots=True)
class Server:
    """`engine` is for what is over soon, `patient` for what reads a whole scope, under no time-out, and `probe`
    for the questions whether the database answers and whether tokens still stand."""

    engine: AsyncEngine
    patient: AsyncEngine
    probe: AsyncEngine
    settings: Settings
    #: The server epoch, as last read.
    epoch: str
    pusher: Pusher = field(init=False)
    judging: Judging = field(init=False)
    hosting: Hosting = field(init=False)
    background: Background = field(init=False)
    streams: OpenStreams = field(init=False)
    #: Whole scopes that are worked on at once; each takes up to two of the patient connections.
    whole: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(PATIENT // 2))

    def __post_init__(self) -> None:
        self.pusher = Pusher(self.engine, self.settings)
        self.hosting = Hosting(self.engine, self.settings)
        self.judging = Judging(self.patient, self.whole)
        self.background = Background(self.patient, self.whole, self.settings)
        self.streams = OpenStreams(self.probe)

    async def stop(self) -> None:
        await self.background.stop()
        await self.judging.stop()
        await self.streams.stop()
        await self.engine.dispose()
        await self.patient.dispose()
        await self.probe.dispose()
