"""The writer of messages: takes requests from the queue and appends their messages to the logs."""

import logging
from collections.abc import Callable, Sequence

from oplogd.errors import NotConfirmedError, StoreUnavailableError
from oplogd.health import Health
from oplogd.ingest.store_errors import as_unavailable
from oplogd.message import Message
from oplogd.store.topics import MessageBatch, Placed, Topics
from oplogd.topics.publish import MessageItem, MessageQueue

BATCH_MESSAGES = 5_000
BATCH_BYTES = 4 * 1024 * 1024

# Gets a log and the offset of its last durable entry.
Acknowledged = Callable[[int, int], None]

logger = logging.getLogger("oplogd.topics")


class MessageWriter:
    """Appends messages in order. Requests that arrive during a commit share the next commit.

    A batch that the store does not take is dropped after its requests have failed: a message that
    was answered with an error must not be stored after later messages of its sender. So this
    writer tries nothing again, unlike the writer of operations.

    ``acknowledged`` is called before requests are resolved.
    """

    def __init__(
        self,
        topics: Topics,
        queue: MessageQueue,
        health: Health,
        acknowledged: Acknowledged | None = None,
    ) -> None:
        self._topics = topics
        self._queue = queue
        self._part = health.part("message writer")
        self._acknowledged = acknowledged

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            items = await self._queue.take(BATCH_MESSAGES, BATCH_BYTES)
            try:
                with as_unavailable(self._part, logger):
                    await self._append(items)
            except StoreUnavailableError as error:
                self._part.bad(str(error))
                self._queue.refuse(items, NotConfirmedError(str(error)))
                self._queue.refuse_waiting(StoreUnavailableError(str(error)))
            else:
                self._part.good()
                self._queue.finish(items)

    async def _append(self, items: Sequence[MessageItem]) -> None:
        by_log: dict[int, list[Message]] = {}
        for item in items:
            by_log.setdefault(item.log, []).extend(item.messages)
        batches = [MessageBatch(log, messages) for log, messages in by_log.items()]
        outcomes = dict(zip(by_log, await self._topics.append(batches), strict=True))
        for item in items:
            item.outcome = outcomes[item.log]
        if self._acknowledged is not None:
            for log, outcome in outcomes.items():
                if isinstance(outcome, Placed):
                    self._acknowledged(log, outcome.last.offset)
