"""The topics this agent has looked up, so a publish need not ask the store."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from oplogd.errors import TopicNotFoundError
from oplogd.model.message import Message
from oplogd.model.names import TopicName, no_topic
from oplogd.store.bounds import require_fitting
from oplogd.store.topics import ENTRY_BYTES, MIN_MAX_BYTES, Topic, Topics

_MAX_KNOWN = 10_000

_T = TypeVar("_T")


class KnownTopics:
    """Another agent may have deleted a known topic. Its log then refuses every call."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._known: dict[TopicName, Topic] = {}

    async def find(self, name: TopicName, other_than: Topic | None = None) -> Topic:
        """Return a topic of this name, maybe gone meanwhile. ``other_than``: known to be gone.

        Raises TopicNotFoundError and StoreUnavailableError.
        """
        topic = self._known.get(name)
        if topic is not None and topic != other_than:
            return topic
        topic = await self.look_up(name)
        if other_than is not None and topic.log == other_than.log:
            raise no_topic(name)
        return topic

    async def fitting(self, name: TopicName, messages: Sequence[Message]) -> Topic:
        """Return a topic for messages. Raises MessageTooLargeError, too.

        Bounds are large, so only large messages make it ask the store for the present one.
        """
        if any(len(message.data) + ENTRY_BYTES > MIN_MAX_BYTES for message in messages):
            topic = await self.look_up(name)
            require_fitting(topic, messages)
            return topic
        return await self.find(name)

    async def using(
        self,
        name: TopicName,
        work: Callable[[Topic], Awaitable[_T]],
        messages: Sequence[Message] = (),
    ) -> _T:
        """Return the result of work with the topic of this name: see ``fitting``."""
        topic = await self.fitting(name, messages)
        try:
            return await work(topic)
        except TopicNotFoundError:  # deleted since it was looked up
            return await work(await self.find(name, other_than=topic))

    async def still(self, topics: Sequence[Topic]) -> list[Topic]:
        """Return these topics, each deleted one replaced by the one that has its name now.

        Raises TopicNotFoundError.
        """
        current = await self._topics.current([topic.log for topic in topics])
        return [
            topic if topic.log in current else await self.find(topic.name, other_than=topic)
            for topic in topics
        ]

    async def look_up(self, name: TopicName) -> Topic:
        """Ask the store for the topic of this name. Raises as ``find`` does."""
        self._known.pop(name, None)
        topic = await self._topics.find(name)
        if topic is None:
            raise no_topic(name)
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        self._known[name] = topic
        return topic

    def forget(self, name: TopicName) -> None:
        self._known.pop(name, None)
