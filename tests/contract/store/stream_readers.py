"""Streams of topics over a store, read until nothing is left. A test decides every step."""

from collections.abc import Iterable

from oplogd.model.event_id import Millis
from oplogd.model.message_id import parse_message_id
from oplogd.model.transaction import Isolation
from oplogd.store.topics import Topic, Topics
from oplogd.stream.consumer import StreamConsumer
from oplogd.stream.feeds import Feeds
from oplogd.stream.hub import Hub
from oplogd.stream.ring.frames import TOPIC_RESET, Framer
from oplogd.stream.ring.postings import Waiter
from oplogd.stream.ring.ring import Ring
from oplogd.stream.topic_follower import TopicFollower
from tests.kits.clock.virtual import VirtualClock
from tests.kits.store.transacting import payload_of
from tests.kits.stream.topic_worlds import read_all

# So few that streams often catch up from the store.
RING_BYTES = 300


def _wake(waiters: Iterable[Waiter]) -> None:
    for waiter in waiters:
        waiter.wake()


class Streams:
    """The streams of one agent."""

    def __init__(self, topics: Topics, clock: VirtualClock) -> None:
        feeds = Feeds(topics, _wake, max_bytes=RING_BYTES, clock=clock.clock)
        self._feeds = feeds
        self._follower = TopicFollower(topics, feeds)
        framer = Framer()
        self._hub = Hub(
            # The oplog's store is not used.
            None,  # type: ignore[arg-type]
            Ring(framer.route, 10, 10**6, _wake),
            framer,
            heartbeat=1e9,
            max_connection_age=0,
            max_clients=10**6,
            feeds=feeds,
        )

    async def advance(self) -> None:
        """Follow until every feed has all entries."""
        await self._follower.advance(0)
        while self._feeds.due:
            await self._follower.advance(0)
        await self._follower.advance(0)

    async def connect(
        self, topic: Topic, isolation: Isolation, last_id: str | None
    ) -> StreamConsumer:
        position = Millis(0) if last_id is None else parse_message_id(last_id)
        return await self._hub.connect_topic(
            topic, position, checkpoints=False, address="host:1", isolation=isolation
        )

    def cut(self, consumer: StreamConsumer) -> None:
        self._hub.disconnect(consumer)

    async def close(self) -> None:
        for consumer in [*self._hub.consumers]:
            self._hub.disconnect(consumer)
        await self._follower.close()


async def read_messages(consumer: StreamConsumer) -> list[tuple[str, str]]:
    """Return the ids and payloads of the messages that a stream has now. Resets are left out."""
    found = []
    stream = (await read_all(consumer)).decode().replace(TOPIC_RESET.decode(), "")
    for block in stream.split("\n\n")[:-1]:
        id_, event, data = block.split("\n")
        assert event == "event: message"
        found.append((id_.removeprefix("id: "), payload_of(data.removeprefix("data: "))))
    return found
