"""The feeds of topics: each exists while its topic has a listener."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from oplogd.clock import SYSTEM, Clock
from oplogd.clock.ages import Ages
from oplogd.model.message_id import MessageId
from oplogd.model.transaction import DEFAULT_ISOLATION, Isolation
from oplogd.shared.heads import Heads
from oplogd.store.topics import Topic, Topics
from oplogd.stream.phases.topic_bridge import TopicBridge
from oplogd.stream.recent_polls import RecentPolls
from oplogd.stream.ring.postings import Waiter
from oplogd.stream.ring.topic_ring import SharedParts, TopicRing
from oplogd.stream.topic_feed import Peeked, TopicFeed

# A feed is dropped this many seconds after its last use.
IDLE_SECONDS = 60.0

# Time between two looks for feeds to drop.
_LOOK_SECONDS = 1.0

# With more logs to read, the follower takes longer than a poll's own read of the store.
MOST_DUE = 32


class FeedStats(NamedTuple):
    """``feeds``: topics with a listener. ``bytes``: memory of their rings' entries."""

    feeds: int
    bytes: int


class Feeds:
    """All feeds of an agent's topics. ``follow_topics`` fills their rings.

    ``max_bytes``: bound of all rings together. Over it, the longest silent topics give up their
    oldest messages first. ``shared``: what other workers know of the logs.
    """

    def __init__(
        self,
        topics: Topics,
        wake: Callable[[Iterable[Waiter]], None],
        *,
        max_bytes: int,
        clock: Clock = SYSTEM,
        ages: Callable[[], Ages] = Ages,
        shared: Heads | None = None,
    ) -> None:
        self._topics = topics
        self.shared = shared or Heads()
        # ``shared.changes`` as of the last look at all topics.
        self.learnt = self.shared.changes
        self._shared = SharedParts(wake, clock.now_ms, ages)
        self.max_bytes = max_bytes
        self._monotonic = clock.monotonic
        # Time to live of topics without their own; None until the store was asked.
        self.default_ttl: int | None = None
        # Whether the follower cannot reach the store: then no ring may answer a poll.
        self.is_stale = False
        # Logs to start or to read without waiting for news.
        self.due: dict[int, None] = {}
        # Logs of feeds whose topics the follower has not looked up.
        self.unsure: dict[int, None] = {}
        # The offsets of the heads of all started rings, by log.
        self.heads: dict[int, int] = {}
        # Number of rings started so far.
        self.starts = 0
        self._feeds: dict[int, TopicFeed] = {}
        # The feeds whose rings hold entries. The last one got an entry last.
        self._holding: OrderedDict[int, TopicFeed] = OrderedDict()
        self._bytes = 0
        self._polls = RecentPolls(clock.monotonic)
        self._looked_at = 0.0
        self._shown = self.acknowledged  # one object for all bridges
        self._follower: asyncio.Future[None] | None = None

    async def open(self, topic: Topic) -> TopicFeed:
        """Return the feed of a topic, for a stream. The caller takes a view at once.

        Raises StoreUnavailableError and TopicNotFoundError.
        """
        feed = self._feeds.get(topic.log)
        if feed is None:
            feed = self._create(topic)
            # The topic may have been changed since it was looked up.
            self.unsure[topic.log] = None
        feed.use()
        if not feed.is_started:
            await feed.start()
            self.started(feed)
            self._wake_follower()
        return feed

    def peek(
        self,
        topic: Topic,
        after: MessageId | None,
        limit: int,
        max_bytes: int,
        isolation: Isolation = DEFAULT_ISOLATION,
    ) -> Peeked | None:
        """Return the messages past a position from memory: at most ``limit``, and up to a hold.

        ``after`` None: from the oldest one. It may lie within an expanding entry. Not for readers
        with a snapshot. ``max_bytes``: about the bytes of all of them; at least one is returned if
        there is any. None: memory may lack some of them, or some behind ``after`` are gone; ask the
        store.
        """
        feed = self._feeds.get(topic.log)
        if feed is None and not self._polls.add(topic.log):
            return None
        if feed is None or not feed.is_started:
            feed = feed or self._create(topic)
            self.due[topic.log] = None
            self._wake_follower()
        feed.use()
        if self.is_stale or not self._is_current(feed):
            return None
        return feed.peek(after, limit, max_bytes, isolation)

    async def peek_soon(
        self,
        topic: Topic,
        after: MessageId | None,
        limit: int,
        max_bytes: int,
        isolation: Isolation = DEFAULT_ISOLATION,
    ) -> Peeked | None:
        """Do ``peek``, after a brief wait if memory only lacks entries that clients know.

        One read of the follower serves all who wait. What clients learn meanwhile may be missing.
        """
        asked = (after, limit, max_bytes, isolation)
        found, feed = self.peek(topic, *asked), self._feeds.get(topic.log)
        if found is not None or feed is None:
            return found
        if len(self.due) > MOST_DUE or not self._may_be_reached(feed):
            return None
        if not await feed.reached(self._newest_shown(feed)) or not self._may_be_reached(feed):
            return None
        return feed.peek(*asked)

    def acknowledged(self, log: int, offset: int) -> None:
        """Note a durable entry shown to a client: without it no worker's ring answers a poll."""
        self.shared.show(log, offset)
        feed = self._feeds.get(log)
        if feed is not None and offset > feed.ring.head.offset:
            feed.acknowledged = max(feed.acknowledged, offset)
            self.due[log] = None
            self._wake_follower()

    def changed(self, topic: Topic) -> None:
        """Take over the time to live of a topic changed by this agent."""
        self.shared.change()
        feed = self._feeds.get(topic.log)
        if feed is not None:
            self.set_ttl(feed, topic)

    def deleted(self) -> None:
        """Note a topic deleted by this agent."""
        self.shared.change()

    def end(self, log: int) -> None:
        """End the streams of a deleted topic."""
        feed = self._feeds.get(log)
        if feed is not None:
            self._remove(feed)
            feed.end()

    @property
    def stats(self) -> FeedStats:
        return FeedStats(len(self._feeds), self._bytes)

    @property
    def is_behind(self) -> bool:
        """Whether a ring lacks an entry acknowledged by this agent."""
        return any(feed.is_behind for feed in self)

    # --- Used by the follower ---

    def __len__(self) -> int:
        return len(self._feeds)

    def __iter__(self) -> Iterator[TopicFeed]:
        return iter(self._feeds.values())

    def get(self, log: int) -> TopicFeed | None:
        return self._feeds.get(log)

    def is_followed(self, log: int) -> bool:
        """Return whether this agent, or another worker, keeps a log's newest entries in memory."""
        return log in self._feeds or self.shared.is_followed(log)

    @property
    def is_outdated(self) -> bool:
        """Whether a topic was changed or deleted since the last look at all topics."""
        return self.shared.changes != self.learnt

    def woken(self) -> "asyncio.Future[None]":
        """Return a future that resolves at the next acknowledgement or new feed."""
        self._follower = asyncio.get_running_loop().create_future()
        return self._follower

    def drop_unused(self) -> None:
        """Drop the feeds unused for IDLE_SECONDS. Looks once per second at most."""
        now = self._monotonic()
        if now - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = now
        for feed in list(self):
            if not feed.ring.views and now - feed.used_at >= IDLE_SECONDS:
                self._remove(feed)

    def set_ttl(self, feed: TopicFeed, topic: Topic) -> None:
        """Take over the time to live of a changed topic."""
        feed.topic = topic
        ttl = self.default_ttl if topic.ttl is None else topic.ttl
        if ttl is not None:
            feed.ring.ttl = ttl

    def started(self, feed: TopicFeed) -> None:
        """Follow a feed whose ring was started."""
        if self._feeds.get(feed.topic.log) is feed:
            self.starts += 1
            self.heads[feed.topic.log] = feed.ring.head.offset

    def grown(self, feed: TopicFeed) -> None:
        """Count the bytes of a ring with new entries, and keep the bound of all rings."""
        if self._feeds.get(feed.topic.log) is not feed:
            return
        self.heads[feed.topic.log] = feed.ring.head.offset
        feed.grown()
        self.shared.show(feed.topic.log, feed.ring.head.offset)  # its readers see the entries now
        self._recount(feed)
        while self._bytes > self.max_bytes and self._holding:
            oldest = next(iter(self._holding.values()))
            self._recount(oldest, self._bytes - self.max_bytes)

    def _recount(self, feed: TopicFeed, give_up: int = 0) -> None:
        if give_up:
            feed.give_up(give_up)
        size = feed.ring.window.size
        self._bytes += size - feed.counted
        feed.counted = size
        log = feed.topic.log
        if not size:
            self._holding.pop(log, None)
        elif not give_up:
            self._holding[log] = feed
            self._holding.move_to_end(log)

    def _create(self, topic: Topic) -> TopicFeed:
        ring = TopicRing(self._shared, self.default_ttl if topic.ttl is None else topic.ttl)
        bridge = TopicBridge(topic, self._topics.log(topic), self._shown)
        feed = TopicFeed(ring, bridge, topic.name, topic=topic, monotonic=self._monotonic)
        feed.use()
        self._feeds[topic.log] = feed
        self.shared.follow(topic.log, 1)
        self._polls.forget(topic.log)
        return feed

    def _remove(self, feed: TopicFeed) -> None:
        log = feed.topic.log
        del self._feeds[log]
        self.shared.follow(log, -1)
        self.heads.pop(log, None)
        self._holding.pop(log, None)
        self.unsure.pop(log, None)
        self.due.pop(log, None)
        self._bytes -= feed.counted

    def _is_current(self, feed: TopicFeed) -> bool:
        """Return whether a feed knows all that clients know. If not, the follower looks soon."""
        log = feed.topic.log
        is_behind = self._newest_shown(feed) > feed.ring.head.offset
        if is_behind:
            self.due[log] = None
        if is_behind or self.is_outdated:
            self._wake_follower()
            return False
        return log not in self.unsure

    def _newest_shown(self, feed: TopicFeed) -> int:
        """Return the offset of the newest entry that clients of any worker know."""
        return max(feed.acknowledged, self.shared.newest(feed.topic.log))

    def _may_be_reached(self, feed: TopicFeed) -> bool:
        """Return whether a ring will be right as soon as the follower has read its log."""
        is_sure = feed.topic.log not in self.unsure
        return feed.is_started and is_sure and not self.is_stale and not self.is_outdated

    def _wake_follower(self) -> None:
        if self._follower is not None and not self._follower.done():
            self._follower.set_result(None)
