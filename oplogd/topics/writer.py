"""The writer of messages: takes requests from the queue and appends their messages to the logs."""

import logging
from collections.abc import Callable, Sequence

from oplogd.ingest.appends import Appends
from oplogd.ingest.request_writer import RequestWriter
from oplogd.model.lease import Fence
from oplogd.model.message import Message
from oplogd.store.topics import MessageBatch, Placed, Topics
from oplogd.topics.publish import MessageItem, MessageQueue
from oplogd.watch.health import Health

# Gets a log and the offset of a durable entry that a publisher or a reader learns of.
Acknowledged = Callable[[int, int], None]

logger = logging.getLogger("oplogd.topics")


def without_rings(log: int, offset: int) -> None:
    """Do nothing: for parts of an agent that has no rings of topics."""


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
