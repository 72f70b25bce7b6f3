"""The interface between polls and the newest messages in memory."""

from typing import Protocol

from oplogd.model.message_id import MessageId
from oplogd.model.transaction import Isolation
from oplogd.store.topics import Topic
from oplogd.stream.topic_feed import Peeked


class Memory(Protocol):
    """The newest messages of busy topics."""

    async def peek_soon(
        self,
        topic: Topic,
        after: MessageId | None,
        limit: int,
        max_bytes: int,
        isolation: Isolation,
        /,
    ) -> Peeked | None:
        """Return messages past an id (None: from the oldest), at most a number and about a size.

        None: memory may lack some of them.
        """

    def acknowledged(self, log: int, offset: int, /) -> None:
        """Never show less of a log than up to the entry at an offset."""
