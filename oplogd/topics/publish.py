"""Publishes the messages of a request: the queue, its writer, the wait until they are durable."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from oplogd.errors import OplogError, StaleFenceError, TopicFullError
from oplogd.ingest.appends import Appends
from oplogd.ingest.request_writer import RequestWriter
from oplogd.model.lease import Fence, stale
from oplogd.model.message import Message
from oplogd.model.names import TopicName
from oplogd.store.topics import Full, MessageBatch, Outcome, Placed, Refused, Topics
from oplogd.topics.counters import TopicCounters
from oplogd.topics.known import KnownTopics
from oplogd.watch.bounded import BoundedQueue, Waiting
from oplogd.watch.health import Health
from oplogd.watch.lease_counters import LeaseCounters

# Gets a log and the offset of a durable entry that a publisher or a reader learns of.
Acknowledged = Callable[[int, int], None]

logger = logging.getLogger("oplogd.topics")


def without_rings(log: int, offset: int) -> None:
    """Do nothing: for parts of an agent that has no rings of topics."""


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


class MessageWriter(RequestWriter[MessageItem]):
    """``acknowledged`` is called before requests are resolved."""

    def __init__(
        self,
        topics: Topics,
        queue: MessageQueue,
        health: Health,
        acknowledged: Acknowledged = without_rings,
        appends: Appends | None = None,
    ) -> None:
        super().__init__(queue, health, "message writer", logger, appends)
        self._topics = topics
        self._acknowledged = acknowledged

    async def append(self, items: Sequence[MessageItem]) -> None:
        groups: dict[tuple[int, Fence | None], list[Message]] = {}
        for item in items:
            groups.setdefault((item.log, item.fence), []).extend(item.messages)
        batches = [MessageBatch(log, messages, fence) for (log, fence), messages in groups.items()]
        outcomes = dict(zip(groups, await self._topics.append(batches), strict=True))
        for item in items:
            item.outcome = outcomes[item.log, item.fence]
        for (log, _), outcome in outcomes.items():
            if isinstance(outcome, Placed):
                self._acknowledged(log, outcome.last.offset)


@dataclass(eq=False)
class PublishService:
    """Publishes messages while their sender waits."""

    known: KnownTopics
    queue: MessageQueue
    counters: TopicCounters
    leases: LeaseCounters = field(default_factory=LeaseCounters)

    @property
    def max_messages(self) -> int:
        """Return the most messages for one append."""
        return self.queue.max_count

    def refuse_invalid(self, count: int) -> None:
        """Count messages refused as invalid."""
        self.counters.add_refused(count)

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
            self.counters.add_refused(len(messages))
            raise
        self.counters.add_published(name, len(messages))

    async def _publish(
        self, name: TopicName, messages: Sequence[Message], fence: Fence | None
    ) -> None:
        self.queue.require_fitting(len(messages), _size_of(messages))
        topic = await self.known.fitting(name, messages)
        while (outcome := await self._append(topic.log, messages, fence)) is Refused.DELETED:
            topic = await self.known.find(name, other_than=topic)
        if fence is not None and outcome is Refused.STALE:
            self.leases.add_stale_publish()
            raise StaleFenceError(stale(fence))
        if isinstance(outcome, Full):
            raise TopicFullError(outcome.reason)

    async def _append(self, log: int, messages: Sequence[Message], fence: Fence | None) -> Outcome:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        item = MessageItem(log, messages, fence, done)
        self.queue.add(item)
        await done
        return item.outcome


def _size_of(messages: Sequence[Message]) -> int:
    return sum(len(message.data) for message in messages)
