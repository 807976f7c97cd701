"""What one server process has: its engine, its settings, and the pushes that wait in it."""

from dataclasses import dataclass, field

from sqlalchemy.ext.asyncio import AsyncEngine

from app.services.judging import Judging
from app.services.push import Pusher
from app.settings import Settings


@dataclass(slots=True)
class Server:
    engine: AsyncEngine
    settings: Settings
    #: The server epoch, as read at start.
    epoch: str
    pusher: Pusher = field(init=False)
    judging: Judging = field(init=False)

    def __post_init__(self) -> None:
        self.pusher = Pusher(self.engine, self.settings)
        self.judging = Judging(self.engine)
