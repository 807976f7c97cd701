"""What one server process has: its engine, its settings, and the pushes that wait in it."""

from dataclasses import dataclass, field

from sqlalchemy.ext.asyncio import AsyncEngine

from app.services.checkpoints.judging import Judging
from app.services.collection.background import Background
from app.services.hosting import Hosting
from app.services.keys.unlocking import Unlocking
from app.services.keys.vault import Vault
from app.services.projections.streams import Streams
from app.services.pushing.push import Pusher
from app.services.reading.open_streams import OpenStreams
from app.services.slots import Slots
from app.settings import Settings

#: Connections of one process for work on whole scopes.
PATIENT = 6
#: Whole scopes that are worked on at once; each takes up to two of those connections. Of one scope so much at most.
AT_ONCE, EACH = PATIENT // 2, 2


@dataclass(slots=True)
class Server:
    """`engine` is for what is over soon, `patient` for what reads a whole scope, under no time-out, `probe` for the
    question whether the database answers, and `watch` for the one whether tokens still stand."""

    engine: AsyncEngine
    patient: AsyncEngine
    probe: AsyncEngine
    watch: AsyncEngine
    settings: Settings
    #: The server epoch, as last read.
    epoch: str
    vault: Vault = field(default_factory=Vault)
    pusher: Pusher = field(init=False)
    judging: Judging = field(init=False)
    hosting: Hosting = field(init=False)
    projections: Streams = field(init=False)
    unlocking: Unlocking = field(init=False)
    background: Background = field(init=False)
    streams: OpenStreams = field(init=False)
    whole: Slots = field(default_factory=lambda: Slots(AT_ONCE, EACH))
    #: Whole streams that are read at once: at most half of the connections that pushes need.
    whole_streams: Slots = field(init=False)

    def __post_init__(self) -> None:
        self.pusher = Pusher(self.engine, self.settings, self.vault)
        most = self.settings.pool_size // 2
        self.whole_streams = Slots(most, each=most)
        self.hosting = Hosting(self.engine, self.settings, self.vault)
        self.projections = Streams(self.engine)
        self.judging = Judging(self.patient, self.whole)
        self.unlocking = Unlocking(self.patient, self.whole, self.vault)
        self.background = Background(self.engine, self.patient, self.whole, self.settings, self.unlocking)
        self.streams = OpenStreams(self.watch)

    async def stop(self) -> None:
        await self.background.stop()
        await self.judging.stop()
        await self.unlocking.stop()
        await self.streams.stop()
        for engine in (self.engine, self.patient, self.probe, self.watch):
            await engine.dispose()
