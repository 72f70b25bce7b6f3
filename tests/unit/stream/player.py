"""The frame of the models of topic streams: worlds, histories and clients that a plan acts on."""

from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from oplogd.store.topics import Topic
from tests.kits.stream.topic_worlds import TopicWorld
from tests.kits.topics.memory import Generation
from tests.unit.stream.topics.topic_clients import MeddledTopics

TOPICS = 2

# More than any of these streams can have: an endless one fails.
MANY_CHUNKS = 2_000


class Followed(Protocol):
    """The history of one generation of a topic, as a model knows it."""

    topic: Topic
    generation: Generation


class Client(Protocol):
    """A stream that checks itself against the history."""

    history: Any
    last_id: str

    async def connect(self, last_id: str) -> None: ...

    def disconnect(self) -> None: ...

    async def read(self) -> bool: ...

    def check_drained(self) -> None: ...


_History = TypeVar("_History", bound=Followed)
_Client = TypeVar("_Client", bound=Client)


class Player(Generic[_History, _Client]):
    """Carries out the actions of a plan. A subclass knows the actions."""

    def __init__(self, max_bytes: int) -> None:
        self.world = TopicWorld(MeddledTopics)
        assert isinstance(self.world.topics, MeddledTopics)
        self.topics = self.world.topics
        self.topics.meddle = []
        self.topics.is_meddling = False
        self.world.feeds.max_bytes = max_bytes
        self.histories: list[_History] = []
        self.clients: list[_Client] = []
        self.published = 0

    async def run(self, plan: Sequence[Any]) -> None:
        for number in range(TOPICS):
            self.histories.append(self._history(await self.world.create(str(number))))
        for action in plan:
            await self._do(action)
        self.topics.meddle.clear()
        await self._drain()
        await self.world.close()

    def _history(self, topic: Topic) -> _History:
        raise NotImplementedError

    async def _do(self, action: Any) -> None:
        raise NotImplementedError

    async def _drain(self) -> None:
        for _ in range(3):
            await self.world.advance()
            for client in self.clients:
                chunks = 0
                while await client.read():
                    chunks += 1
                    assert chunks < MANY_CHUNKS, "an endless stream"
        for client in self.clients:
            client.check_drained()

    def _restart_ring(self, topic: int) -> None:
        """Make the follower lose its place."""
        history = self.histories[topic]
        feed = self.world.feeds.get(history.topic.log)
        if feed is not None and feed.is_started:
            feed.ring.restart(history.generation.head)
            self.world.feeds.grown(feed)

    async def _resume(self, client: _Client) -> None:
        """Connect again at the last event id, maybe to a later generation of the topic."""
        client.disconnect()
        client.history = self.histories[int(client.history.topic.name.topic)]
        await client.connect(client.last_id)
