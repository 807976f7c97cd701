"""eventsourcing: insert_events, 256 events of 16 aggregates a call; select_notifications, 1,000 at a time."""

import sys
import uuid

from eventsourcing.persistence import StoredEvent
from eventsourcing.postgres import PostgresApplicationRecorder, PostgresDatastore

from bench.peers.loop import drive, parts

AGGREGATES = 16


class EventSourcing:
    def __init__(self, url: str) -> None:
        server = parts(url)
        datastore = PostgresDatastore(
            dbname=server.database, host=server.host, port=str(server.port), user=server.user,
            password=server.password or "none",
        )  # fmt: skip
        self._recorder = PostgresApplicationRecorder(datastore, events_table_name="events")
        self._recorder.create_table()

    def prepare(self, batches: list[list[str]]) -> None:
        self._first = (self._recorder.max_notification_id() or 0) + 1
        self._count = sum(map(len, batches))
        self._events = []
        for batch in batches:
            ids = [uuid.uuid4() for _ in range(AGGREGATES)]
            self._events.append([
                StoredEvent(ids[i % AGGREGATES], i // AGGREGATES + 1, "message:Said", message.encode())
                for i, message in enumerate(batch)
            ])  # fmt: skip

    def append(self) -> None:
        for events in self._events:
            self._recorder.insert_events(events)

    def read(self) -> int:
        read, start = 0, self._first
        while read < self._count:
            page = self._recorder.select_notifications(start=start, limit=1000)
            read, start = read + len(page), page[-1].id + 1
        return read


if __name__ == "__main__":
    drive(EventSourcing(sys.argv[1]))
