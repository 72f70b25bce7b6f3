"""The follower of topics: one task reads the logs of all feeds as they grow."""

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from oplogd.errors import LogReplacedError, StoreUnavailableError, TopicNotFoundError
from oplogd.store.topics import News, Topics
from oplogd.stream.feeds import Feeds
from oplogd.stream.follower import Pace, pieces
from oplogd.stream.phases.record_pages import read_blocks
from oplogd.stream.topic_feed import TopicFeed
from oplogd.watch.health import Health

_BATCH = 2_000

# Logs read or checked at a time, and logs checked after a wait.
_AT_ONCE = 8

# Longest wait for news. After it, some logs are checked: are they still the ones followed?
_NEWS_SECONDS = 1.0

# Feeds whose topics are looked up and compared in one turn of the event loop.
_LEARNT_AT_ONCE = 500

# Errors of one log, which do not disturb the others.
_HANDLED = (TopicNotFoundError, LogReplacedError)

_RETRY_SECONDS = 1.0

logger = logging.getLogger("oplogd.follower")


async def follow_topics(topics: Topics, feeds: Feeds, health: Health) -> None:
    """Follow the topics of all feeds until cancelled. Sleeps while there is none."""
    part = health.part("topics")
    follower = TopicFollower(topics, feeds)
    try:
        while True:
            try:
                await follower.advance(_NEWS_SECONDS)
                feeds.is_stale = False
                part.good()
            except StoreUnavailableError as error:
                feeds.is_stale = True
                part.bad(str(error))
                await asyncio.sleep(_RETRY_SECONDS)
            if not len(feeds):
                part.good()
                await feeds.woken()
    finally:
        await follower.close()


class TopicFollower:
    """Appends new entries to the rings, and tells the feeds about changed and deleted topics."""

    def __init__(self, topics: Topics, feeds: Feeds) -> None:
        self._topics = topics
        self._feeds = feeds
        # The call waiting for news, its heads, and the number of rings started before.
        self._news: asyncio.Task[News] | None = None
        self._heads: dict[int, int] = {}
        self._starts = 0
        # Version of the catalogue by which the feeds know their topics.
        self._version: int | None = None
        # Offsets up to which entries have left logs because of bounds in bytes.
        self._floors: dict[int, int] = {}
        # Logs of changed topics. Their rings may hold messages already gone.
        self._changed: dict[int, None] = {}
        # The last checked log.
        self._checked = 0

    async def advance(self, seconds: float) -> None:
        """Wait up to ``seconds`` for news, then read up to a page of each of these logs.

        Raises StoreUnavailableError; then call it again.
        """
        feeds = self._feeds
        feeds.drop_unused()
        if not len(feeds):
            return
        if feeds.default_ttl is None or feeds.is_outdated:
            await self._learn_topics()
        elif feeds.unsure:
            await self._learn([feed for log in feeds.unsure if (feed := feeds.get(log))])
        news = await self._wait(seconds)
        if news is not None:
            # A log read since the call began is named again if there is more.
            feeds.due.update(
                (log, None) for log in news.logs if feeds.heads.get(log) == self._heads.get(log, -1)
            )
            self._floors |= news.floors
        self._forget_left()
        is_idle = news is not None and not feeds.due
        await self._each(self._read, feeds.due)
        if news is not None and news.version != self._version:
            await self._learn_topics()
            self._version = news.version
        if is_idle:
            await self._each(self._check, self._next_to_check())

    async def close(self) -> None:
        """End the call waiting for news."""
        news, self._news = self._news, None
        if news is not None:
            news.cancel()
            (result,) = await asyncio.gather(news, return_exceptions=True)
            if isinstance(result, News):
                self._floors |= result.floors

    def _forget_left(self) -> None:
        """Drop entries removed from the store by a bound in bytes."""
        floors, self._floors = self._floors, {}
        for log, offset in floors.items():
            feed = self._feeds.get(log)
            if feed is not None and feed.is_started:
                feed.ring.forget(offset)
                self._feeds.grown(feed)

    async def _wait(self, seconds: float) -> News | None:
        """Return the news; None if the follower was woken before there are any."""
        feeds = self._feeds
        if self._starts != feeds.starts:
            await self.close()
        if self._news is None:
            self._starts = feeds.starts
            self._heads = dict(feeds.heads)
            call = self._topics.news(self._heads, seconds)
            self._news = asyncio.create_task(call, name="news of topics")
        if not feeds.due:
            either: set[asyncio.Future[Any]] = {self._news, feeds.woken()}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not self._news.done():
            return None
        news, self._news = self._news, None
        return news.result()

    async def _each(
        self, work: Callable[[TopicFeed], Awaitable[None]], logs: Iterable[int]
    ) -> None:
        """Do some work for each of these logs, a few at a time. Feeds of deleted topics end."""
        found = [feed for log in list(logs) if (feed := self._feeds.get(log))]
        for first in range(0, len(found), _AT_ONCE):
            some = found[first : first + _AT_ONCE]
            results = await asyncio.gather(*map(work, some), return_exceptions=True)
            for feed, result in zip(some, results, strict=True):
                if isinstance(result, TopicNotFoundError):
                    self._feeds.end(feed.topic.log)
                elif isinstance(result, LogReplacedError):
                    await self._restart(feed)
            for result in results:
                if isinstance(result, BaseException) and not isinstance(result, _HANDLED):
                    raise result

    async def _read(self, feed: TopicFeed) -> None:
        """Start the ring, or append up to a page of the entries past its head."""
        feeds, ring = self._feeds, feed.ring
        if not feed.is_started:
            # The feed's poll may have looked up the topic before a change.
            await self._learn([feed])
            await feed.start()
            feeds.started(feed)
            feeds.due.pop(feed.topic.log, None)
            return
        head = ring.head
        entries = await feed.log.read(head.offset, _BATCH, head.ms if head.offset else None)
        expected = range(head.offset + 1, head.offset + 1 + len(entries))
        if any(entry.offset != offset for entry, offset in zip(entries, expected, strict=True)):
            raise LogReplacedError(f"the log of {feed.name} continues behind {head.offset}")
        if not entries:  # all of them may have expired before they were read
            await self._check(feed)
        pace = Pace()
        for piece in pieces(entries):
            if kinds := ring.expanding:
                ring.append(piece, await read_blocks(feed.log, piece, kinds))
            else:
                ring.append(piece)
            feeds.grown(feed)
            await pace.rest()
        if len(entries) < _BATCH and not (entries and feed.is_behind):
            feeds.due.pop(feed.topic.log, None)

    async def _check(self, feed: TopicFeed) -> None:
        """Raise LogReplacedError if the log does not continue at the head of a ring."""
        head = feed.ring.head
        if (await feed.log.locate(head.ms, head.sequence)).at != head:
            raise LogReplacedError(f"the log of {feed.name} does not continue at {head.offset}")

    def _next_to_check(self) -> list[int]:
        """Return some logs; all of them in turn."""
        logs = sorted(self._feeds.heads)
        first = bisect_right(logs, self._checked)
        chosen = (logs[first:] + logs[:first])[:_AT_ONCE]
        self._checked = chosen[-1] if chosen else 0
        return chosen

    async def _restart(self, feed: TopicFeed) -> None:
        """Let a ring continue at the head of its log. Its consumers continue by their bridge."""
        try:
            bounds = await feed.log.locate()
        except TopicNotFoundError:
            self._feeds.end(feed.topic.log)
            return
        logger.info(
            "the log of topic %s does not continue at offset %d: following it from %d",
            feed.name,
            feed.ring.head.offset + 1,
            bounds.head.offset,
        )
        feed.ring.repaired = bounds.repaired
        feed.ring.restart(bounds.head)
        feed.acknowledged = min(feed.acknowledged, bounds.head.offset)
        self._feeds.shared.lower(feed.topic.log, bounds.head.offset)
        self._feeds.grown(feed)
        self._feeds.due.pop(feed.topic.log, None)

    async def _learn_topics(self) -> None:
        """Take over changed times to live, and end the feeds of deleted topics."""
        feeds = self._feeds
        changes = feeds.shared.changes
        feeds.default_ttl = await self._topics.default_ttl()
        await self._learn(list(feeds))
        feeds.learnt = changes

    async def _learn(self, known: list[TopicFeed]) -> None:
        feeds = self._feeds
        for first in range(0, len(known), _LEARNT_AT_ONCE):
            some = known[first : first + _LEARNT_AT_ONCE]
            current = await self._topics.current([feed.topic.log for feed in some])
            for feed in some:
                log = feed.topic.log
                feeds.unsure.pop(log, None)
                topic = current.get(log)
                if topic is None:
                    feeds.end(log)
                    continue
                if topic != feed.topic:
                    self._changed[log] = None
                feeds.set_ttl(feed, topic)
            await asyncio.sleep(0)
        await self._each(self._forget_gone, self._changed)

    async def _forget_gone(self, feed: TopicFeed) -> None:
        """Drop entries gone from the store: the time to live may have changed twice."""
        if feed.is_started:
            feed.ring.forget((await feed.log.locate()).front.offset)
        self._changed.pop(feed.topic.log, None)
