"""Topics in memory with pointers, their feeds, and consumers."""

from oplogd.model.event_id import Mark, Millis
from oplogd.model.pointer import MAX_POINTER, Decision
from oplogd.model.transaction import Isolation
from oplogd.store.topics import Topic
from oplogd.store.transactions import RecordLimits
from oplogd.stream.consumer import StreamConsumer
from oplogd.stream.phases.start import TopicPosition
from tests.kits.stream.topic_worlds import TopicWorld, message, read_all, told
from tests.kits.topics.memory_pointers import MemoryPointers
from tests.unit.stream.topics.topic_clients import MeddledTopics
from tests.unit.stream.transactions.transacted_topics import COMMITTED

# As large as those of Tephra, and the largest.
P, Q = 1_830_000_000_000_000_001, MAX_POINTER
TIMEOUT_MS = 900_000
COMMIT, ABORT, TIMED_OUT = Decision.COMMITTED, Decision.ABORTED, Decision.TIMED_OUT

# More stored messages than a page has, and than the ring holds of one entry.
LARGE = 2_000


class PointerWorld(TopicWorld):
    def __init__(self) -> None:
        super().__init__(MeddledTopics)
        assert isinstance(self.topics, MeddledTopics)
        self.topics.meddle, self.topics.is_meddling = [], False
        self.meddle = self.topics.meddle
        self.pointers = MemoryPointers(self.topics)

    async def follow(
        self,
        topic: Topic,
        position: TopicPosition | None = None,
        isolation: Isolation = COMMITTED,
        *,
        checkpoints: bool = False,
    ) -> StreamConsumer:
        return await self.hub.connect_topic(
            topic, position, checkpoints=checkpoints, address="host:1", isolation=isolation
        )

    async def direct(self, topic: Topic, pointer: int, *texts: str, ttl: int = 0) -> list[Mark]:
        made = [message(text, ttl or None) for text in texts]
        return [*await self.pointers.publish(topic.log, pointer, made, TIMEOUT_MS)]

    async def stored(self, topic: Topic, pointer: int, *texts: str) -> Mark:
        """Store messages and publish them."""
        made = [message(text) for text in texts]
        await self.pointers.store(topic.log, pointer, made, TIMEOUT_MS, RecordLimits())
        mark = await self.pointers.publish_stored(topic.log, pointer, TIMEOUT_MS)
        assert mark is not None
        return mark

    async def decide(self, topic: Topic, pointer: int, decision: Decision) -> Mark:
        return (await self.pointers.decide([topic.log], pointer, decision))[topic.log]

    async def roll_back(self, topic: Topic, pointer: int) -> None:
        await self.pointers.rollback(topic.log, pointer, None)

    async def forget(self, topic: Topic) -> None:
        """Let the ring give up all that it holds."""
        feed = self.feeds.get(topic.log)
        assert feed is not None
        feed.give_up(10**9)

    async def reads(self, topic: Topic) -> dict[Isolation, list[str]]:
        """Return what new readers of both isolations get from the beginning, from the store."""
        return {
            each: told(await read_all(await self.follow(topic, Millis(0), each)))
            for each in Isolation
        }
