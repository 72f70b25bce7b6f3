"""Sends published messages: one task for each topic with some."""

import asyncio
import dataclasses
import logging
import time

from oplogc.http.answers import Answer
from oplogc.http.backoff import Backoff
from oplogc.http.client import NoAnswer
from oplogc.process.changes import Changes
from oplogc.topics.calls import topics
from oplogc.topics.calls.agents import Agents
from oplogc.topics.calls.call import Call
from oplogc.topics.messages.names import TopicName
from oplogc.topics.publish.publication import Publication, fail
from oplogc.topics.publish.queue import PublishCounters, PublishQueue
from oplogc.topics.publish.room import BufferRoom
from oplogc.wire.errors import BufferFullError, FlushError

MAX_CONNECTIONS = 16
_TICK_SECONDS = 1.0
logger = logging.getLogger("oplogc")


class MessagePublisher:
    """To be used in one event loop."""

    def __init__(self, agents: Agents, room: BufferRoom) -> None:
        self._agents = agents
        self._room = room
        self._slots = asyncio.Semaphore(MAX_CONNECTIONS)
        self._queues: dict[TopicName, PublishQueue] = {}
        self._tasks: dict[TopicName, asyncio.Task[None]] = {}
        self._pending: set[Publication] = set()
        self._changes = Changes()
        self._counters = PublishCounters()
        self._ended = False

    def add(self, publication: Publication, has_room: bool) -> None:
        """Publish messages for which there is room. Fail others."""
        count = len(publication.messages)
        self._counters.published += count
        if not has_room:
            self._counters.dropped += count
            error = BufferFullError(f"the buffer is full ({self._room.messages:,} messages)")
            fail(publication.future, error)
            return
        self._pending.add(publication)
        name = publication.name
        queue = self._queues.get(name)
        if queue is None:
            options = self._agents.options
            backoff = Backoff(*options.backoff)
            queue = PublishQueue(str(name), options.batch_size, backoff, self._settled)
            self._queues[name] = queue
            run = self._run(name, queue)
            self._tasks[name] = asyncio.create_task(run, name=f"oplogc-publish {name}")
        queue.add(publication)

    @property
    def counters(self) -> PublishCounters:
        """Return a copy of the counters."""
        buffered = sum(len(each.messages) for each in self._pending)
        return dataclasses.replace(self._counters, buffered=buffered)

    async def flush(self, timeout: float | None) -> None:
        """Wait until everything published before is settled. Raises FlushError.

        Ends at once if the agent refuses messages without a time limit.
        """
        waiting = set(self._pending)

        def is_over() -> bool:
            refused = any(queue.refusal is not None for queue in self._queues.values())
            return refused or not waiting & self._pending

        await self._changes.wait_for(is_over, timeout)
        left = waiting & self._pending
        if left:
            pending = sum(len(each.messages) for each in left)
            reason = next((each.trouble for each in self._queues.values() if each.trouble), "")
            raise FlushError(
                f"{pending:,} messages are not delivered: {reason or 'no answer yet'}", pending
            )

    async def end(self) -> None:
        """Fail all remaining messages."""
        self._ended = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for queue in self._queues.values():  # of a task cancelled before its begin
            queue.end()

    async def _run(self, name: TopicName, queue: PublishQueue) -> None:
        try:
            while messages := queue.batch():
                call = topics.publish(name, messages)
                try:
                    async with self._slots:
                        answer, sent = await self._agents.ask_each(call)
                except Exception as error:  # of a token function
                    pause = queue.refused(error)
                else:
                    pause = self._apply(call, queue, answer, sent)
                self._changes.notify()
                await self._pause(queue, pause)
        finally:
            if queue and not self._ended:  # the event loop ends
                logger.error(
                    "messages for %s are lost at the end of the event loop: close the topics", name
                )
            queue.end()
            del self._queues[name], self._tasks[name]
            self._changes.notify()

    def _apply(
        self, call: Call[None], queue: PublishQueue, answer: Answer | NoAnswer, sent: bool
    ) -> float:
        """Return the seconds until the next request."""
        if isinstance(answer, NoAnswer):
            self._counters.retried += 1
            return queue.postpone(time.monotonic(), answer.reason, 0.0, sent)
        if answer.passes:
            self._counters.retried += 1
            return queue.postpone(time.monotonic(), answer.sentence(), answer.retry_after, sent)
        error = topics.refusal(call, answer) or topics.confirmation(answer)
        if error is None:
            queue.delivered()
            return 0.0
        return queue.refused(error)

    async def _pause(self, queue: PublishQueue, seconds: float) -> None:
        """Wait, and fail publications whose time is over before the end of the pause."""
        end = time.monotonic() + seconds
        while queue and (left := end - time.monotonic()) > 0:
            await asyncio.sleep(min(left, _TICK_SECONDS))
            queue.expire(end)
            self._changes.notify()

    def _settled(self, publication: Publication, counter: str) -> None:
        self._pending.discard(publication)
        count = len(publication.messages)
        setattr(self._counters, counter, getattr(self._counters, counter) + count)
        self._room.give(count, publication.size)
