"""Takes the messages of a request: queues them and waits until they are durable."""

import asyncio
from collections.abc import Sequence

from oplogd.errors import OplogError, StaleFenceError, TopicFullError
from oplogd.model.lease import Fence, stale
from oplogd.model.message import Message
from oplogd.model.names import TopicName
from oplogd.store.topics import Full, Outcome, Refused
from oplogd.topics.counters import TopicCounters
from oplogd.topics.known import KnownTopics
from oplogd.watch.bounded import BoundedQueue, Waiting
from oplogd.watch.lease_counters import LeaseCounters


class MessageItem(Waiting):
    """Messages of one request. ``outcome`` is set before the request is resolved."""

    __slots__ = ("fence", "log", "messages", "outcome")

    def __init__(
        self,
        log: int,
        messages: Sequence[Message],
        fence: Fence | None,
        done: "asyncio.Future[None]",
    ) -> None:
        super().__init__(len(messages), _size_of(messages), done)
        self.log = log
        self.messages = messages
        self.fence = fence
        self.outcome: Outcome = Refused.DELETED


MessageQueue = BoundedQueue[MessageItem]


class Publisher:
    """Publishes messages while their sender waits."""

    def __init__(
        self,
        known: KnownTopics,
        queue: MessageQueue,
        counters: TopicCounters,
        leases: LeaseCounters | None = None,
    ) -> None:
        self._known = known
        self._queue = queue
        self._counters = counters
        self._leases = leases or LeaseCounters()

    @property
    def max_messages(self) -> int:
        """Return the most messages that can be stored together."""
        return self._queue.max_count

    def refuse_invalid(self, count: int) -> None:
        """Count messages refused as invalid."""
        self._counters.add_refused(count)

    async def publish(
        self, name: TopicName, messages: Sequence[Message], fence: Fence | None = None
    ) -> None:
        """Append messages to a topic together, and return when they are durable.

        Raises TopicNotFoundError, TooLargeError, MessageTooLargeError, QueueFullError,
        TopicFullError, NotConfirmedError, StoreUnavailableError, and StaleFenceError if the fence
        does not hold.
        """
        try:
            await self._publish(name, messages, fence)
        except OplogError:
            self._counters.add_refused(len(messages))
            raise
        self._counters.add_published(name, len(messages))

    async def _publish(
        self, name: TopicName, messages: Sequence[Message], fence: Fence | None
    ) -> None:
        self._queue.require_room(len(messages), _size_of(messages))
        topic = await self._known.fitting(name, messages)
        while (outcome := await self._append(topic.log, messages, fence)) is Refused.DELETED:
            topic = await self._known.find(name, other_than=topic)
        if fence is not None and outcome is Refused.STALE:
            self._leases.add_stale_publish()
            raise StaleFenceError(stale(fence))
        if isinstance(outcome, Full):
            raise TopicFullError(outcome.reason)

    async def _append(self, log: int, messages: Sequence[Message], fence: Fence | None) -> Outcome:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        item = MessageItem(log, messages, fence, done)
        self._queue.add(item)
        await done
        return item.outcome


def _size_of(messages: Sequence[Message]) -> int:
    return sum(len(message.data) for message in messages)
