"""The feed of a topic."""

from collections.abc import Callable
from dataclasses import dataclass, field

from oplogd.model.isolation import EntryKind
from oplogd.model.message_id import MessageId
from oplogd.model.transaction import DEFAULT_ISOLATION, Isolation
from oplogd.store.topics import Topic, TopicLog
from oplogd.stream.phases.phase import Feed
from oplogd.stream.phases.topic_bridge import TopicBridge
from oplogd.stream.phases.topic_start import is_within
from oplogd.stream.ring.peeked import Peeked, may_expand, messages_after
from oplogd.stream.ring.topic_ring import TopicRing
from oplogd.stream.ring.view import View


@dataclass(eq=False, slots=True)
class TopicFeed(Feed):
    """``acknowledged``: the newest offset that a publisher or a reader has learned from this agent.

    ``used_at``: time of the last use, by ``monotonic``. ``counted``: bytes of the ring that
    are counted in the sum of all rings.
    """

    ring: TopicRing
    bridge: TopicBridge
    topic: Topic = field(kw_only=True)
    monotonic: Callable[[], float] = field(kw_only=True)
    acknowledged: int = 0
    used_at: float = 0.0
    counted: int = 0

    @property
    def log(self) -> TopicLog:
        """Raises TopicNotFoundError after ``end``."""
        return self.bridge.log

    @property
    def is_started(self) -> bool:
        return self.ring.epoch > 0

    @property
    def is_behind(self) -> bool:
        """Whether the ring lacks an entry that this agent has acknowledged."""
        return self.ring.head.offset < self.acknowledged

    async def start(self) -> None:
        """Let a ring that holds no log yet begin at the log's head.

        Raises StoreUnavailableError and TopicNotFoundError.
        """
        if not self.is_started:
            bounds = await self.log.locate()
            head, is_plain = bounds.head, False
            if head.offset > bounds.front.offset:
                for entry in await self.log.read(head.offset - 1, 1):
                    is_plain = entry.offset == head.offset and entry.event == EntryKind.MESSAGE
            if not self.is_started:
                self.ring.repaired = bounds.repaired
                self.ring.restart(head)
                self.ring.window.base_is_plain = is_plain

    def use(self) -> None:
        self.used_at = self.monotonic()

    def release(self, view: View) -> None:
        """Undo one call of ``ring.view``."""
        self.ring.release(view)
        self.use()

    def end(self) -> None:
        """End the streams of all consumers: the topic was deleted."""
        self.bridge.ended = True
        self.ring.restart(self.ring.head)

    def peek(
        self,
        after: MessageId | None,
        limit: int,
        max_bytes: int,
        isolation: Isolation = DEFAULT_ISOLATION,
    ) -> Peeked | None:
        """See ``Feeds.peek``."""
        ring = self.ring
        if not self.is_started or self.is_behind or self.bridge.ended:
            return None
        ring.expire()
        committed = isolation is Isolation.READ_COMMITTED
        if after is None:
            if not ring.reaches_the_front():
                return None
            after = MessageId(*ring.window.base_mark[1:])
        elif self._may_be_inside(after, committed=committed):
            return None
        return messages_after(ring, after.ms, after.sequence, limit, max_bytes, committed=committed)

    def _may_be_inside(self, after: MessageId, *, committed: bool) -> bool:
        """Return whether a reader at this position may want records of the entry there."""
        wants = after.records_after is not None if committed else is_within(after, committed=False)
        return wants and may_expand(self.ring, after.ms, after.sequence, committed=committed)

    def give_up(self, size: int) -> None:
        """Drop the oldest entries until ``size`` bytes are free, or none is left."""
        window = self.ring.window
        keep = window.size - size
        while len(window) and window.size > keep:
            self.ring.drop()
