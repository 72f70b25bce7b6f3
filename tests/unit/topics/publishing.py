"""A publisher and its writer over topics in memory, for tests of publishing."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from oplogd.model.message import of_payload
from oplogd.model.names import TopicName
from oplogd.topics.counters import TopicCounters
from oplogd.topics.known import KnownTopics
from oplogd.topics.publish import MessageQueue, MessageWriter, PublishService
from oplogd.watch.health import Health
from tests.kits.processes.logged import DEADLINE
from tests.kits.topics.memory import MemoryTopics

NAME = TopicName("ns", "t")
OTHER_NAME = TopicName("ns", "other")


class Bench:
    """A publisher and its writer over topics in memory. ``max_messages``: bound of the queue."""

    def __init__(self, max_messages: int = 1000) -> None:
        self.topics = MemoryTopics(lambda: 1_700_000_000_000)
        self.counters = TopicCounters()
        self.health = Health()
        self.queue = MessageQueue(max_messages, 10**6, "messages")
        self.publisher = PublishService(KnownTopics(self.topics), self.queue, self.counters)
        self.acknowledged: list[tuple[int, int]] = []

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Run the writer. The test fails if the writer dies."""
        writer = MessageWriter(
            self.topics,
            self.queue,
            self.health,
            lambda log, offset: self.acknowledged.append((log, offset)),
        )
        async with asyncio.timeout(DEADLINE), asyncio.TaskGroup() as group:
            task = group.create_task(writer.run())
            yield
            await self.queue.emptied()
            task.cancel()

    async def publish(self, *payloads: str, name: TopicName = NAME) -> None:
        await self.publisher.publish(name, [of_payload(each.encode()) for each in payloads])

    def publishing(self, *payloads: str, name: TopicName = NAME) -> "asyncio.Task[None]":
        return asyncio.create_task(self.publish(*payloads, name=name))

    async def stored(self, name: TopicName = NAME) -> list[str]:
        topic = await self.topics.find(name)
        assert topic is not None
        return [entry.data for entry in await self.topics.log(topic).read(0, 1000)]


def data(*payloads: str) -> list[str]:
    return [f'{{"payload":"{each}"}}' for each in payloads]


async def queued(bench: Bench, messages: int) -> None:
    """Wait until the queue holds this many messages."""
    async with asyncio.timeout(DEADLINE):
        while bench.queue.count != messages:
            await asyncio.sleep(0)


async def errors_of(tasks: Sequence["asyncio.Task[None]"]) -> list[object]:
    results = await asyncio.gather(*tasks, return_exceptions=True)
    return [each if each is None else type(each) for each in results]
